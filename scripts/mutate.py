#!/usr/bin/env python3
"""A mutation pass: small faults are put into comparison, diagnosis, optimizer and training, one at a time, and the tests
must notice. All faults are compiled at once into a copy of the library below build/mutants, each behind a switch that an
environment variable turns (mutate_source.py); the test programs of an ordinary build run with that library in place of their
own. A first run of each test without a fault notes which faults it comes by; a fault is then tried with those tests alone,
the quickest first, until one fails. What was found is kept, so that a pass that was broken off goes on.

usage: scripts/mutate.py [--count 400] [--seed 1] [--build build]; docs/MUTANTS.md tells more."""
import argparse
import collections
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import mutate_source

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ('validate', 'diagnose', 'optim', 'train')
PROGRAMS = ('test_validate', 'test_diagnose', 'test_optim', 'test_train')
# Readers of other people's logs are fuzzed and are no comparison; the others measure time or talk to a person or a service.
LEFT_OUT = {'validate/csv_records', 'validate/event_runs', 'validate/mlflow_runs', 'validate/wandb_chart',
            'validate/wandb_runs', 'validate/run_files', 'validate/run_log', 'validate/command_line', 'train/bench',
            'train/announcement', 'train/speed', 'train/wandb'}


MOST = 1 << 16  # ids
PATIENCE = 12  # seconds that may pass for each that a test may compute


def say(*words):
    print(*words, flush=True)


def stop(text):
    sys.exit(f'mutate: {text}')


class Pass:
    def __init__(self, options):
        self.options = options
        self.build = (ROOT / options.build).resolve()
        self.home = ROOT / 'build' / 'mutants'
        self.tree = self.home / 'tree'
        self.scratch = self.home / 'scratch'
        self.file = self.home / f'pass_{options.seed}_{options.count}.json'
        self.home.mkdir(parents=True, exist_ok=True)
        self.state = json.loads(self.file.read_text()) if self.file.exists() and not options.fresh else {}
        for name in ('ids', 'dropped', 'tests', 'results'):
            self.state.setdefault(name, {})

    def save(self):
        draft = self.file.with_suffix('.new')
        draft.write_text(json.dumps(self.state, indent=1))
        draft.replace(self.file)

    # ---- the mutants ----

    def sources(self):
        for room in ROOMS:
            for path in sorted((ROOT / 'invar' / room).glob('*.cpp')):
                if f'{room}/{path.stem}' not in LEFT_OUT:
                    yield path

    def draw(self):
        """Evenly over the files, and within a file over the kinds, from the first to the last; never two on a line."""
        files = []
        for path in self.sources():
            name, text = str(path.relative_to(ROOT)), path.read_text()
            chance = random.Random(f'{self.options.seed} {name}')
            kinds = collections.defaultdict(list)
            for mutant in mutate_source.Source(text).mutants():
                mutant.file = name
                kinds[mutant.kind].append(mutant)
            for kind in sorted(kinds):
                chance.shuffle(kinds[kind])
            order = sorted(kinds)
            chance.shuffle(order)
            files.append([mutant for row in zip_all([kinds[kind] for kind in order]) for mutant in row])
        random.Random(self.options.seed).shuffle(files)
        drawn, lines = [], set()
        for mutant in (mutant for row in zip_all(files) for mutant in row):
            here = {(mutant.file, line) for line in range(mutant.line, mutant.last + 1)}
            if not here & lines and len(drawn) < self.options.count:
                drawn.append(mutant)
                lines |= here
        drawn = [mutant for mutant in drawn if mutant.key not in self.state['dropped']]
        ids = self.state['ids']  # a number stays with its mutant: where others are dropped, few files change
        for mutant in drawn:
            mutant.id = ids.setdefault(mutant.key, len(ids) + 1)
        return drawn

    # ---- the library with all of them ----

    def write_tree(self, mutants):
        listed = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard'], cwd=ROOT, capture_output=True, text=True)
        wanted = {}
        for name in listed.stdout.split('\n'):
            if name and (ROOT / name).is_file() and not name.startswith('tests/'):
                wanted[name] = (ROOT / name).read_bytes()
        by_file = collections.defaultdict(list)
        for mutant in mutants:
            by_file[mutant.file].append(mutant)
        for name, those in by_file.items():
            wanted[name] = mutate_source.rewritten(wanted[name].decode(), those).encode()
        wanted['mutants.h'] = mutate_source.HEADER.encode()
        wanted['invar/core/mutants.cpp'] = mutate_source.SWITCH.replace('COUNT', str(MOST)).encode()
        for name, content in wanted.items():  # what is the same keeps its time, and is not compiled again
            path = self.tree / name
            if not path.exists() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        for path in (self.tree / 'invar').rglob('*.cpp'):
            if str(path.relative_to(self.tree)) not in wanted:
                path.unlink()

    def compile(self):
        """The mutants that compile, after as many rounds as it takes."""
        for _ in range(20):
            mutants = self.draw()
            self.write_tree(mutants)
            if not (self.tree / 'build' / 'build.ninja').exists():
                self.command('cmake', '-S', self.tree, '-B', self.tree / 'build', '-G', 'Ninja', '-DCMAKE_BUILD_TYPE=Release',
                             '-DINVAR_CUDA=OFF', '-DINVAR_TESTS=OFF', '-DINVAR_BENCH=OFF', '-DINVAR_EXAMPLES=OFF')
            say(f'building {len(mutants)} mutants')
            built = subprocess.run(['cmake', '--build', self.tree / 'build', '--target', 'invar', '--', '-k', '0',
                                    f'-j{self.options.jobs}'], capture_output=True, text=True)
            if built.returncode == 0:
                return mutants
            bad = guilty(built.stdout + built.stderr, mutants)
            if not bad:
                stop('the copy does not build, and no mutant is to blame:\n' + (built.stdout + built.stderr)[-4000:])
            say(f'{len(bad)} do not compile and are dropped')
            for mutant in bad:
                self.state['dropped'][mutant.key] = mutant.change
            self.save()
        stop('after twenty rounds there are still mutants that do not compile')

    @staticmethod
    def command(*words):
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            stop(f'{" ".join(map(str, words))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}')
        return done.stdout

    # ---- tests ----

    def run(self, name, seconds, mutant=0, reached=None):
        """Runs one test; 'passed', 'failed', 'hung', and how long it computed. On a busy machine only that time counts, unless it
        waits for something that never comes."""
        program, case = name.split(' ', 1)
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        environment = dict(os.environ, LD_PRELOAD=str(self.tree / 'build' / 'lib' / 'libinvar.so'), INVAR_MUTANT=str(mutant),
                           TMPDIR=str(self.scratch))
        if reached is not None:
            environment['INVAR_MUTANTS_REACHED'] = str(reached)
        began = computed()
        child = subprocess.Popen([self.build / 'bin' / program, f'--gtest_filter={case}', '--gtest_brief=1'], env=environment,
                                 cwd=self.scratch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 stdin=subprocess.DEVNULL, start_new_session=True,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1)))
        try:
            code = child.wait(PATIENCE * seconds)
            said = 'passed' if code == 0 else 'hung' if code in (-signal.SIGXCPU, -signal.SIGKILL) else 'failed'
        except subprocess.TimeoutExpired:
            said = 'hung'
        try:
            os.killpg(child.pid, signal.SIGKILL)  # what it started goes with it
        except ProcessLookupError:
            pass
        child.wait()
        return said, computed() - began

    def cases(self, program):
        suite = ''
        for line in self.command(self.build / 'bin' / program, '--gtest_list_tests').splitlines():
            line = line.split('  #')[0].rstrip()
            if not line.startswith(' '):
                suite = line
            elif '.' in suite and not line.strip().startswith('DISABLED_'):
                yield f'{program} {suite}{line.strip()}'

    def record(self, mutants):
        """Which mutants each test comes by. A test that is slow, or fails without any, is left out."""
        library = hashlib.sha256('\n'.join(m.key + m.change for m in mutants).encode()).hexdigest()[:16]
        if self.state.get('library') != library:
            self.state.update(library=library, tests={}, results={})
        known, tests = self.state['tests'], {}
        for program in self.options.programs.split(','):
            for case in self.cases(program):
                tests[case] = known.get(case)
        map_file = self.home / 'reached'
        fresh = [case for case in tests if tests[case] is None or case in self.options.changed]
        for number, case in enumerate(fresh, 1):
            map_file.write_bytes(bytes(MOST))
            said, seconds = self.run(case, self.options.slow, reached=map_file)
            reached = [i for i, seen in enumerate(map_file.read_bytes()) if seen and i > 0]
            tests[case] = {'said': said, 'seconds': round(seconds, 3), 'reached': reached}
            self.state['tests'] = {name: found for name, found in tests.items() if found is not None}
            if number % 20 == 0 or number == len(fresh):
                say(f'recorded {number}/{len(fresh)} tests')
                self.save()
        self.state['tests'] = tests
        self.save()
        for said, why in (('failed', 'fail without a mutant'), ('hung', f'take longer than {self.options.slow} s')):
            names = [case for case, found in tests.items() if found['said'] == said]
            if names:
                say(f'{len(names)} tests {why} and are left out: ' + ', '.join(names))

    def try_all(self, mutants):
        results = self.state['results']
        passed = {case: found for case, found in self.state['tests'].items() if found['said'] == 'passed'}
        killed = 0
        # What was never tried comes before what has survived so far.
        for number, mutant in enumerate(sorted(mutants, key=lambda mutant: mutant.key in results), 1):
            tests = [(found['seconds'], case) for case, found in passed.items() if mutant.id in found['reached']]
            # Quick ones first, and among those the ones that come by little else: they are about it.
            tests.sort(key=lambda test: (test[0] * len(passed[test[1]]['reached']), test[1]))
            if len(tests) == len(passed):  # a constant that is there before main: who uses it is not known
                tests = [test for test in tests if test[1].startswith(f'test_{mutant.file.split("/")[1]} ')]
            before = results.get(mutant.key)
            if before is None or before['status'] != 'killed':
                tried = set() if before is None else set(before['tests'])
                results[mutant.key] = self.attempt(mutant, [test for test in tests if test[1] not in tried], tried)
                self.save()
            killed += results[mutant.key]['status'] == 'killed'
            if before != results[mutant.key]:
                result = results[mutant.key]
                say(f'{number}/{len(mutants)} {killed} killed  {mutant.file}:{mutant.line} {mutant.kind}: {result["status"]}'
                    + (f' by {result["by"]}' if result['by'] else f' {len(result["tests"])} tests'))

    def attempt(self, mutant, tests, tried):
        spent, done = 0.0, sorted(tried)
        for seconds, case in tests:
            if spent > self.options.budget:
                break
            said, took = self.run(case, int(5 + 5 * seconds), mutant=mutant.id)
            spent += took
            if said != 'passed':  # twice, or chance or a busy machine did it
                said, _ = self.run(case, int(5 + 5 * seconds), mutant=mutant.id)
            if said != 'passed':
                return {'status': 'killed', 'by': case + (' (hangs)' if said == 'hung' else ''), 'tests': []}
            done.append(case)
        return {'status': 'survived' if done else 'unreached', 'by': '', 'tests': done}

    # ---- what came out ----

    def tell(self, mutants):
        results = self.state['results']
        tried = [mutant for mutant in in_order(mutants) if mutant.key in results]
        if len(tried) < len(mutants):
            say(f'{len(mutants) - len(tried)} of {len(mutants)} were not tried; those that were are as evenly spread')
        mutants = tried
        for title, group in (('folder', lambda m: m.file.split('/')[1]), ('kind', lambda m: m.kind)):
            rows = collections.defaultdict(lambda: [0, 0])
            for mutant in mutants:
                for name in (group(mutant), 'all'):
                    rows[name][0] += 1
                    rows[name][1] += results[mutant.key]['status'] == 'killed'
            say(f'\n{title:<16}{"mutants":>9}{"killed":>9}{"survived":>10}{"%":>8}')
            for name in sorted(rows, key=lambda name: (name == 'all', name)):
                count, killed = rows[name]
                say(f'{name:<16}{count:>9}{killed:>9}{count - killed:>10}{100 * killed / count:>8.1f}')
        say('\nsurvivors:')
        for mutant in mutants:
            result = results[mutant.key]
            if result['status'] != 'killed':
                say(f'  {mutant.file}:{mutant.line} {mutant.kind}: {mutant.change}'
                    + ('' if result['tests'] else '  (no test comes by)'))


def computed():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_order(mutants):
    return sorted(mutants, key=lambda mutant: (mutant.file, mutant.line))


def zip_all(rows):
    """The first of each row, then the second of each that has one, ..."""
    for n in range(max(map(len, rows), default=0)):
        yield [row[n] for row in rows if n < len(row)]


def guilty(output, mutants):
    """The mutants on lines that the compiler's errors name; failing that, those on lines named on the way to the error."""
    place = re.compile(r'(invar/\w+/\w+\.cpp):(\d+)(?:[:,])')
    by_line = collections.defaultdict(set)
    for mutant in mutants:
        for line in range(mutant.line, mutant.last + 1):
            by_line[mutant.file, line].add(mutant.id)
    bad, context, after = set(), set(), None
    for line in output.splitlines():
        found = place.search(line)
        here = by_line[found[1], int(found[2])] if found else set()
        if ' error: ' in line:
            bad |= here or context
            after = bool(here or context)
            context = set()
            if not after and found:  # a note below may name the line
                nearest = min((m for m in mutants if m.file == found[1]), key=lambda m: abs(m.line - int(found[2])), default=None)
                after = nearest
        elif here:
            if after is None or after is True:
                context |= here if 'required from' in line or 'in expansion' in line or 'note:' not in line else set()
            else:
                bad |= here
                after = True
        elif isinstance(after, mutate_source.Mutant) and ('FAILED' in line or line.startswith('[')):
            bad.add(after.id)
            after = None
    if isinstance(after, mutate_source.Mutant):
        bad.add(after.id)
    return [mutant for mutant in mutants if mutant.id in bad]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    parser.add_argument('--count', type=int, default=400, help='mutants to draw; some will not compile')
    parser.add_argument('--seed', type=int, default=1, help='what the draw goes by')
    parser.add_argument('--build', default='build', help='an ordinary build with its test programs')
    parser.add_argument('--programs', default=','.join(PROGRAMS), help='test programs, with commas between them')
    parser.add_argument('--slow', type=int, default=10, help='seconds from which on a test is left out')
    parser.add_argument('--budget', type=float, default=30, help='seconds of tests that one mutant may take')
    parser.add_argument('--jobs', type=int, default=2, help='compilers at a time')
    parser.add_argument('--changed', nargs='*', default=[], metavar='TEST', help='tests to record anew: "test_optim Suite.Name"')
    parser.add_argument('--fresh', action='store_true', help='forget what an earlier pass found')
    parser.add_argument('--list', action='store_true', help='print the mutants that would be drawn, and end')
    options = parser.parse_args()
    os.nice(10)
    work = Pass(options)
    if options.list:
        for mutant in in_order(work.draw()):
            say(f'{mutant.file}:{mutant.line} {mutant.kind}: {mutant.change}')
        return
    for program in options.programs.split(','):
        if not (work.build / 'bin' / program).exists():
            stop(f'{work.build}/bin/{program} is not there: cmake --build {options.build} --target {program}')
    mutants = work.compile()
    work.record(mutants)
    try:
        work.try_all(mutants)
    except KeyboardInterrupt:
        say('broken off: the same command goes on from here')
    work.tell(mutants)


if __name__ == '__main__':
    main()
