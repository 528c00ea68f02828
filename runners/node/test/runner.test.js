'use strict';
// Drives the runner over its socket. test/runners has the tests for every language.

const {test} = require('node:test');
const assert = require('node:assert/strict');
const {spawn} = require('node:child_process');
const path = require('node:path');
const readline = require('node:readline');
const {once} = require('node:events');

const BIN = path.join(__dirname, '..', 'bin', 'resqued-runner.js');
const JOBS = path.join(__dirname, 'jobs.mjs');

// Starts a runner. The socket is a pipe that Node makes for a child: a unix stream socket.
async function start(t, {concurrency = 1, files = [JOBS], env = {}} = {}) {
  const child = spawn(process.execPath, [BIN, ...files], {
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    env: {...process.env, RESQUED_FD: '3', RESQUED_CONCURRENCY: String(concurrency), RESQUED_RUNNER: 'app', ...env},
  });
  const runner = {child, socket: child.stdio[3], stderr: '', number: 0, ended: once(child, 'close')};
  child.stderr.on('data', (text) => { runner.stderr += text; });
  child.stdout.resume();
  runner.socket.on('error', () => {});
  const lines = readline.createInterface({input: runner.socket})[Symbol.asyncIterator]();
  runner.read = async () => {
    const {value, done} = await lines.next();
    return done ? null : JSON.parse(value);
  };
  runner.write = (object) => runner.socket.write(`${JSON.stringify(object)}\n`);
  runner.begin = (name, args = [], more = {}) => {
    runner.number++;
    runner.write({job: {number: runner.number, id: `id-${runner.number}`, class: name, payload: {class: name, args}, ...more}});
    return runner.number;
  };
  runner.perform = (name, ...args) => {
    runner.begin(name, args);
    return runner.read();
  };
  t.after(() => child.kill('SIGKILL'));
  return runner;
}

async function ready(t, options) {
  const runner = await start(t, options);
  const {hello} = await runner.read();
  assert.ok(hello, runner.stderr);
  runner.hello = hello;
  return runner;
}

test('functions are found in modules, maps and objects', async (t) => {
  const runner = await ready(t);
  assert.ok(runner.hello.classes.includes('Billing::Close'));
  assert.equal((await runner.perform('Billing::Close')).why, 'by a Map');
  assert.equal((await runner.perform('Default')).why, 'by default');
  for (const name of ['default', 'more', 'toString', '']) {
    assert.equal((await runner.perform(name)).exception, 'UnknownClass');
  }
});

test('what is thrown becomes a failure', async (t) => {
  const runner = await ready(t);
  const failed = async (what) => {
    const {exception, message, backtrace} = await runner.perform('Throws', what);
    assert.ok(Array.isArray(backtrace));
    return [exception, message, backtrace];
  };
  assert.deepEqual((await failed('text')).slice(0, 2), ['String', 'only a text']);
  assert.deepEqual((await failed('nothing')).slice(0, 2), ['Error', 'undefined']);
  assert.deepEqual((await failed('late')).slice(0, 2), ['TypeError', 'late']);
  assert.deepEqual((await failed('coded')).slice(0, 2), ['CodedError', 'coded']);
  assert.ok((await failed('cause'))[2].includes('caused by RangeError: inner'));
  assert.equal((await failed('odd'))[0], 'Object');
  assert.match((await failed('cause'))[2][0], /jobs\.mjs:\d+:in 'Context\.Throws'$/);
});

test('a job that should make room is told', async (t) => {
  const runner = await ready(t);
  const number = runner.begin('MakesRoom');
  assert.ok((await runner.read()).progress);
  runner.write({leaving: number + 7}); // one that has ended already
  runner.write({leaving: number});
  assert.deepEqual(await runner.read(), {discard: number, why: 'made room'});
});

test('an interrupted job says so', async (t) => {
  const runner = await ready(t);
  assert.deepEqual(await runner.perform('Interrupted'), {done: 1, interrupted: true});
  assert.deepEqual(await runner.perform('Whose', 'x'), {discard: 2, why: 'x: Whose x'});
});

test('a cancelled job may clean up, and the runner leaves', async (t) => {
  const runner = await ready(t);
  runner.write({cancel: runner.begin('Cleanup'), why: 'timeout'});
  assert.equal((await runner.read()).why, 'cleaned up after timeout');
  assert.equal(await runner.read(), null);
  assert.deepEqual(await runner.ended, [0, null]);
});

test('one of several is cancelled: no new job, and the others end in peace', async (t) => {
  const runner = await ready(t, {concurrency: 3});
  const other = runner.begin('Aborted');
  const number = runner.begin('Aborted');
  runner.write({cancel: number, why: 'lock_lost'});
  const failed = await runner.read();
  assert.deepEqual([failed.failed, failed.exception, failed.message], [number, 'Cancelled', 'the job was cancelled: lock_lost']);
  const late = runner.begin('Whose', ['late']);
  assert.equal((await runner.read()).requeue, late);
  runner.write({cancel: other, why: 'killed'});
  assert.equal((await runner.read()).failed, other);
  assert.equal(await runner.read(), null);
  assert.deepEqual(await runner.ended, [0, null]);
});

test('each promise has its own job', async (t) => {
  const runner = await ready(t, {concurrency: 50});
  for (let i = 0; i < 50; i++) runner.begin('Whose', [`n${i}`]);
  const ends = new Set();
  for (let i = 0; i < 50; i++) ends.add((await runner.read()).why);
  assert.equal(ends.size, 50);
  assert.ok(ends.has('n7: Whose n7'));
});

test('what outlives its job does not speak for it', async (t) => {
  const runner = await ready(t);
  assert.ok((await runner.perform('Outlives')).done);
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal((await runner.perform('Default')).why, 'by default');
});

test('a line that is too long fails the job', async (t) => {
  const runner = await ready(t);
  const log = await runner.perform('TooLong');
  assert.equal(log.log.message, 'x');
  assert.equal((await runner.read()).exception, 'RangeError');
});

test('programs that jobs start do not have the socket', {skip: process.platform !== 'linux'}, async (t) => {
  const runner = await ready(t);
  // Its output may be a socket; the runner's would be one more.
  const {why} = await runner.perform('Inherited');
  assert.ok(Number(why) <= 1, why);
});

for (const [name, said] of [['Uncaught', /an error that nothing catches, in job Uncaught id-1/], ['Unhandled', /a rejection that nothing handles/]]) {
  test(`${name}: the runner ends, and says whose it was`, async (t) => {
    const runner = await ready(t);
    runner.begin(name);
    assert.equal(await runner.read(), null);
    assert.deepEqual(await runner.ended, [1, null]);
    assert.match(runner.stderr, said);
  });
}

test('slices', async (t) => {
  const runner = await ready(t);
  const job = runner.begin('Yields', [], {args: [], run: 'r', slice: 1, state: {}});
  assert.deepEqual(await runner.read(), {report: {job, line: {progress: {done: 1, total: 2}, state: {a: 1}}}});
  runner.write({reply: {job, line: {saved: 1}}});
  runner.write({slice_over: job});
  assert.deepEqual((await runner.read()).report.line, {yield: true});
  assert.equal((await runner.read()).done, job);
});

test('characters that stand in two chunks stay whole', async (t) => {
  const runner = await ready(t);
  const line = Buffer.from(`${JSON.stringify({job: {number: 1, class: 'Whose', payload: {args: ['😀ö']}}})}\n`);
  for (const byte of line) {
    runner.socket.write(Buffer.from([byte]));
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal((await runner.read()).why, '😀ö: Whose 😀ö');
});

test('what cannot start says why', async (t) => {
  const cases = [
    [{env: {RESQUED_FORK_FD: '4'}}, 78, /fork: false.*runners: app/s],
    [{env: {RESQUED_FD: 'x'}}, 64, /RESQUED_FD is x/],
    [{files: []}, 64, /usage: resqued-runner/],
    [{files: ['nowhere.js']}, 1, /nowhere\.js/],
    [{files: [path.join(__dirname, '..', 'package.json')]}, 1, /package\.json/],
  ];
  for (const [options, code, said] of cases) {
    const runner = await start(t, options);
    assert.deepEqual(await runner.ended, [code, null], runner.stderr);
    assert.match(runner.stderr, said);
  }
});

test('the module loads as CommonJS and as an ES module, and is one', async () => {
  const required = require('..');
  const imported = await import('../lib/index.js');
  for (const name of ['current', 'discard', 'log', 'longJob', 'progress', 'refreshLock', 'requeue', 'Cancelled']) {
    assert.equal(imported[name], required[name], name);
  }
  assert.equal(required.current(), undefined);
  assert.throws(() => required.progress(1), /no job is performed here/);
  assert.throws(() => required.requeue(-1), RangeError);
  assert.throws(() => required.longJob(7), TypeError);
});
