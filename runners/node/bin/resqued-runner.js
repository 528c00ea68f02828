#!/usr/bin/env node
'use strict';

require('../lib/main').main(process.argv.slice(2));
