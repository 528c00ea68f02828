'use strict';
// The jobs of a runner: each is a promise.

const {Channel} = require('./channel');
const {Context} = require('./context');
const {performSlice} = require('./longjob');
const {storage, LONG, OUTCOME} = require('./shared');
const text = require('./text');

class UnknownClass extends ReferenceError {}
UnknownClass.prototype.name = 'UnknownClass';

class Worker {
  constructor({descriptor, concurrency, handlers, app}) {
    this.handlers = handlers;
    this.jobs = new Map();
    this.leaving = false;
    this.channel = new Channel(descriptor, {
      onLine: (line) => this.obey(line),
      onBad: (error, line) => this.bad(error, line),
      // The worker process is gone; the jobs will run elsewhere.
      onEnd: () => process.reallyExit(this.jobs.size > 0 ? 1 : 0),
    });
    process.on('uncaughtException', (error, origin) => this.broken(error, origin));
    this.channel.tell({
      hello: {protocol: 1, concurrency, language: `node ${process.versions.node}`, app, classes: [...handlers.keys()].sort(), leaving: true},
    });
  }

  obey(line) {
    if (line.job !== undefined) this.begin(line.job);
    else if (line.cancel !== undefined) this.cancel(line.cancel, line.why);
    else if (line.leave !== undefined) {
      this.leaving = true;
      this.maybeLeave();
    } else if (line.leaving !== undefined) {
      const context = this.jobs.get(line.leaving);
      if (context) context.leave();
    } else if (line.slice_over !== undefined) {
      const context = this.jobs.get(line.slice_over);
      if (context) {
        context.sliceOver = true;
        if (context.run) context.run.over = true;
      }
    } else if (line.reply !== undefined) {
      const context = line.reply && this.jobs.get(line.reply.job);
      if (context && context.run) context.run.replied(line.reply.line);
    } else if (line.pause !== undefined) process.emit('resqued:pause');
    else if (line.resume !== undefined) process.emit('resqued:resume');
    else {
      const kinds = Object.keys(line).sort().join(', ').slice(0, 200) || 'none';
      this.channel.tell({error: `a kind of line that this runner does not know: ${kinds}`});
    }
  }

  begin(described) {
    if (!described || typeof described !== 'object' || !Number.isSafeInteger(described.number)) {
      this.channel.tell({error: 'a job without a number'});
      return;
    }
    if (this.leaving) {
      // The job crossed the end of a cancelled one; nothing of it has run.
      this.channel.send(`{"requeue":${described.number},"after":0}`);
      return;
    }
    const context = new Context(described, this.channel);
    this.jobs.set(described.number, context);
    let returned;
    try {
      returned = storage.run(context, perform, this, context);
    } catch (error) {
      this.end(context, error, true);
      return;
    }
    if (returned !== null && typeof returned === 'object' && typeof returned.then === 'function') {
      Promise.resolve(returned).then(() => this.end(context), (error) => this.end(context, error, true));
    } else {
      this.end(context);
    }
  }

  end(context, error, thrown = false) {
    const {number} = context.job;
    context.ended = true;
    this.jobs.delete(number);
    const done = context.enqueuedRest ? `{"done":${number},"interrupted":true}` : `{"done":${number}}`;
    this.channel.send(thrown ? JSON.stringify(ended(context, error)) : done);
    if (context.cancelled) this.leaving = true;
    if (this.leaving) this.maybeLeave();
  }

  cancel(number, why) {
    const context = this.jobs.get(number);
    if (!context) return;
    this.leaving = true;
    context.cancel(String(why || 'killed'));
  }

  maybeLeave() {
    if (this.jobs.size === 0) this.channel.flushed(() => process.exit(0));
  }

  bad(error, line) {
    const found = /^\s*\{\s*"job"\s*:\s*\{\s*"number"\s*:\s*(\d{1,15})[,}\s]/.exec(line);
    if (found) {
      this.channel.tell({failed: Number(found[1]), exception: text.name(error), message: text.message(error).slice(0, 300), backtrace: []});
    } else {
      this.channel.tell({error: `a line that is not a JSON object: ${text.message(error).slice(0, 300)}`});
    }
  }

  // After an uncaught error the state of the process is unknown, so it ends together with its
  // jobs.
  broken(error, origin) {
    const context = storage.getStore();
    const where = context && !context.ended ? `in job ${context.job.class} ${context.job.id}` : 'outside of any job that runs';
    const what = origin === 'unhandledRejection' ? 'a rejection that nothing handles' : 'an error that nothing catches';
    const stack = error && error.stack ? error.stack : text.string(error);
    process.exitCode = 1;
    try {
      require('node:fs').writeSync(2, `${stack}\nresqued-runner: ${what}, ${where}; the runner ends with its ${this.jobs.size} jobs\n`);
    } catch {
      // stderr is closed.
    }
    process.reallyExit(1);
  }
}

function perform(worker, context) {
  const name = context.job.class;
  const handler = worker.handlers.get(name);
  if (!handler) {
    const known = [...worker.handlers.keys()].sort().join(', ');
    throw new UnknownClass(`no function is exported for the class ${name} (exported: ${known})`);
  }
  if (handler[LONG]) return performSlice(context, handler);
  return handler.apply(context, context.job.args);
}

// The line that ends a job with the error that it threw.
function ended(context, error) {
  const {number} = context.job;
  const outcome = error && typeof error === 'object' ? error[OUTCOME] : undefined;
  if (outcome === 'requeue') return {requeue: number, after: error.after};
  if (outcome === 'limitHit') return {limit_hit: number, limit: error.limit.slice(0, 1000), after: error.after};
  if (outcome === 'discard') return {discard: number, why: error.why.slice(0, 1000)};
  if (context.cancelled && error && error.name === 'AbortError') {
    return {failed: number, exception: 'Cancelled', message: context.cancelled.message, backtrace: text.backtrace(error)};
  }
  return {failed: number, exception: text.name(error), message: text.message(error), backtrace: text.backtrace(error)};
}

module.exports = {Worker};
