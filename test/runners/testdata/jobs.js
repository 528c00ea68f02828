'use strict';
// The classes of test/runners, in Node.

const fs = require('node:fs');
const {setTimeout: sleep} = require('node:timers/promises');
const {current, discard, limitHit, log, longJob, progress, refreshLock, requeue} =
  require('../../../runners/node');

class Boom extends Error {}

module.exports = {
  Nop() {},
  Fail(message) {
    throw new Boom(message);
  },
  Two(...args) {
    if (args.length !== 2) throw new TypeError(`Two takes 2 arguments, and got ${args.length}`);
  },
  Length(text) {
    discard([...text].length);
  },
  async Again(after) {
    await sleep(1);
    requeue(after);
  },
  Hit(limit, after) {
    limitHit(limit, after);
  },
  async Drop(why) {
    discard(why);
  },
  async Tell() {
    progress(3, 9, 'half');
    await sleep(1);
    log('told');
    refreshLock();
  },
  async Sleep(seconds) {
    await sleep(seconds * 1000, undefined, {signal: current().signal});
  },
  Busy(seconds) {
    const until = Date.now() + seconds * 1000;
    while (Date.now() < until);
  },
  Exit(code) {
    process.exit(code);
  },
  Die() {
    process.kill(process.pid, 'SIGKILL');
  },
  Print(text) {
    console.log(text);
    console.error(text);
  },
  CloseAll() {
    for (let fd = 3; fd < 64; fd++) {
      try {
        fs.closeSync(fd);
      } catch {
        // It was not open.
      }
    }
  },
  Environment(name) {
    this.discard(process.env[name] ?? '(not set)');
  },
  Recurse: function recurse() {
    recurse();
  },
  async Uncaught() {
    setTimeout(() => { throw new Boom('late'); }, 1);
    await sleep(60000);
  },
  async Unhandled() {
    Promise.reject(new Boom('nobody waits'));
    await sleep(60000);
  },
  Meet(people) {
    return new Promise((resolve) => {
      met.push(resolve);
      if (met.length >= people) met.forEach((each) => each());
    });
  },
  Steps: longJob(async function* (run, count) {
    for (let step = run.state.step ?? 0; step < count; step++) {
      await sleep(1);
      yield {step: step + 1};
    }
  }),
};

const met = [];
