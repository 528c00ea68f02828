'use strict';
// The context of a job: `this` in its function, and current() anywhere in it.

const {Cancelled, Requeue, Discard} = require('./index');

class Job {
  constructor(described) {
    this.described = described;
    this.number = described.number;
    this.id = described.id;
    this.class = described.class;
    this.queue = described.queue;
    this.attempt = described.attempt;
    this.maxAttempts = described.max_attempts;
    this.enqueuedAt = described.enqueued_at;
    this.deadline = described.deadline;
    this.deaths = described.deaths;
    this.worker = described.worker;
    this.lockKey = described.lock_key;
    this.fence = described.fence;
  }

  get payload() {
    let {payload} = this.described;
    if (payload === undefined) {
      payload = JSON.parse(Buffer.from(String(this.described.payload_base64 || ''), 'base64').toString('utf8'));
    }
    if (payload === null || typeof payload !== 'object' || Array.isArray(payload)) {
      throw new TypeError('the payload of a job has to be an object');
    }
    return payload;
  }

  get args() {
    // An Active Job's arguments come separately: its payload has those of its wrapper.
    const args = this.described.args ?? this.payload.args;
    if (args === undefined || args === null) return [];
    if (!Array.isArray(args)) throw new TypeError(`the args of a job have to be a list, and are ${typeof args}`);
    return args;
  }
}

class Context {
  #channel;
  #controller = null;
  #leaving = new AbortController();
  #cancelled = null;

  constructor(described, channel) {
    this.job = new Job(described);
    this.#channel = channel;
    this.ended = false;
    this.enqueuedRest = false;
  }

  // Aborted when the job must stop; the reason is a Cancelled.
  get signal() {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.#cancelled) this.#controller.abort(this.#cancelled);
    }
    return this.#controller.signal;
  }

  // Why the job must stop (a Cancelled), or null.
  get cancelled() {
    return this.#cancelled;
  }

  // Aborted when the job should make room: save what it has done and end.
  get leaving() {
    return this.#leaving.signal;
  }

  // Called by the runner, like cancel.
  leave() {
    this.#leaving.abort();
  }

  cancel(why) {
    if (this.#cancelled) return;
    this.#cancelled = new Cancelled(why);
    if (this.#controller) this.#controller.abort(this.#cancelled);
  }

  progress(done, total, message) {
    this.#tell({progress: {job: this.job.number, done, total, message}});
  }

  refreshLock() {
    this.#tell({refresh_lock: this.job.number});
  }

  log(message, level = 'info') {
    this.#tell({log: {job: this.job.number, level: String(level), message: String(message).slice(0, 8192)}});
  }

  // Counts the job as interrupted if it succeeds: it saved what it did and enqueued the rest.
  interrupted() {
    this.enqueuedRest = true;
  }

  requeue(after) {
    throw new Requeue(after);
  }

  discard(why) {
    throw new Discard(why);
  }

  report(line) {
    this.#tell({report: {job: this.job.number, line}});
  }

  // A context may outlive its job. Then it writes nothing, because resqued would take the
  // runner for broken.
  #tell(object) {
    if (!this.ended) this.#channel.tell(object);
  }
}

module.exports = {Context};
