'use strict';
// What the runner knows of lib/index.js, which may be another copy of it.

module.exports = {
  storage: require('./index') && globalThis[Symbol.for('resqued-runner.current')],
  LONG: Symbol.for('resqued-runner.long'),
  OUTCOME: Symbol.for('resqued-runner.outcome'),
};
