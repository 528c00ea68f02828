'use strict';
// The runner's access to lib/index.js, of which jobs may load another copy.

module.exports = {
  storage: require('./index') && globalThis[Symbol.for('resqued-runner.current')],
  LONG: Symbol.for('resqued-runner.long'),
  OUTCOME: Symbol.for('resqued-runner.outcome'),
};
