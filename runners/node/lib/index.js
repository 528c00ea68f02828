'use strict';
// The API for jobs: require('resqued-runner') or import … from 'resqued-runner'. Requiring it
// starts nothing, so functions can be called and tested like any others.

const {AsyncLocalStorage} = require('node:async_hooks');

// Shared by all copies of this module in a process, so a job with another copy in its own
// node_modules reaches the runner that performs it.
const SHARED = Symbol.for('resqued-runner.current');
const LONG = Symbol.for('resqued-runner.long');
const OUTCOME = Symbol.for('resqued-runner.outcome');
if (!globalThis[SHARED]) {
  Object.defineProperty(globalThis, SHARED, {value: new AsyncLocalStorage()});
}
const storage = globalThis[SHARED];

// The reason of a cancelled job's signal.
class Cancelled extends Error {
  constructor(why) {
    super(`the job was cancelled: ${why}`);
    this.name = 'Cancelled';
    this.why = why;
  }
}

class Requeue extends Error {
  constructor(after = 0) {
    super(`run again after ${after} seconds`);
    if (typeof after !== 'number' || !(after >= 0 && after < Infinity)) {
      throw new RangeError(`requeue(after): ${after} is not a number of seconds from 0`);
    }
    this.name = 'Requeue';
    this.after = after;
    this[OUTCOME] = 'requeue';
  }
}

class LimitHit extends Requeue {
  constructor(limit, after) {
    super(after);
    this.name = 'LimitHit';
    this.limit = String(limit);
    this[OUTCOME] = 'limitHit';
  }
}

class Discard extends Error {
  constructor(why = '') {
    super(String(why));
    this.name = 'Discard';
    this.why = String(why);
    this[OUTCOME] = 'discard';
  }
}

// Returns the context of the caller's job, or undefined.
function current() {
  return storage.getStore();
}

function here() {
  const context = storage.getStore();
  if (!context) throw new Error('no job is performed here: current() is undefined');
  return context;
}

// Marks a function, or an async generator, as a long job.
function longJob(handler) {
  if (typeof handler !== 'function') throw new TypeError(`longJob needs a function, and got ${typeof handler}`);
  Object.defineProperty(handler, LONG, {value: true});
  return handler;
}

exports.Cancelled = Cancelled;
exports.Requeue = Requeue;
exports.LimitHit = LimitHit;
exports.Discard = Discard;
exports.current = current;
exports.longJob = longJob;
exports.progress = (done, total, message) => here().progress(done, total, message);
exports.refreshLock = () => here().refreshLock();
exports.log = (message, level) => here().log(message, level);
exports.requeue = (after) => { throw new Requeue(after); };
exports.limitHit = (limit, after) => { throw new LimitHit(limit, after); };
exports.discard = (why) => { throw new Discard(why); };
