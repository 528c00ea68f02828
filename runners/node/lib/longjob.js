'use strict';
// The slices of long jobs.

class Yielded extends Error {}

// The running slice: the first argument of a long job.
class LongJob {
  #context;
  #reported = 0;
  #saved = 0;
  #waiting = [];

  constructor(context) {
    const {described} = context.job;
    this.#context = context;
    this.id = described.run;
    this.slice = described.slice;
    this.fence = described.fence;
    this.message = described.message;
    // The state saved by this slice and earlier ones.
    this.state = {...described.state};
    // Whether the slice is over: then the job should save and yield.
    this.over = false;
  }

  get context() {
    return this.#context;
  }

  // Reports a state (keys with new values; null clears one), without waiting.
  report(state, progress) {
    const line = {};
    if (progress) line.progress = progress;
    if (state) {
      line.state = state;
      this.#reported++;
      for (const [key, value] of Object.entries(state)) {
        if (value === null) delete this.state[key];
        else this.state[key] = value;
      }
    }
    this.#context.report(line);
  }

  // Reports a state. The promise resolves when it is saved.
  save(state = {}, progress) {
    this.report(state, progress);
    const number = this.#reported;
    if (this.#saved >= number) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push({number, resolve}));
  }

  progress(done, total, message) {
    this.#context.report({progress: {done, total, message}});
  }

  // Ends the slice; the run continues with the next one. Does not return.
  yield() {
    throw new Yielded('the slice is over');
  }

  // Called by the runner.
  replied(line) {
    if (!line || typeof line.saved !== 'number') return;
    this.#saved = Math.max(this.#saved, line.saved);
    this.#waiting = this.#waiting.filter(({number, resolve}) => {
      if (number > this.#saved) return true;
      resolve();
      return false;
    });
  }
}

async function performSlice(context, handler) {
  const run = new LongJob(context);
  context.run = run;
  if (context.sliceOver) run.over = true;
  const {args} = context.job.described;
  try {
    const returned = handler.call(context, run, ...(Array.isArray(args) ? args : []));
    if (returned && typeof returned[Symbol.asyncIterator] === 'function') {
      for await (const state of returned) {
        await run.save(state || {});
        if (run.over) throw new Yielded('the slice is over');
      }
    } else {
      await returned;
    }
  } catch (error) {
    if (!(error instanceof Yielded)) throw error;
    context.report({yield: true});
    return;
  }
  context.report({done: true});
}

module.exports = {performSlice};
