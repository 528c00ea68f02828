package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/schedule"
)

// hostile are mistaken values by key, each of which must be reported. want is part of the error
// or, after "warn: ", of the warning.
var hostile = map[string][][2]string{
	"redis_url": {
		{"redis_url: redis://h:99999", "the port must be a number from 1 to 65535"},
		{"redis_url: redis://h:0", "the port must be"},
		{"redis_url: redis://[::1]:99999/0", "the port must be"},
		{"redis_url: redis-sentinel://a:26379,b:99999/primary", "the port must be"},
		{"redis_url: redis-sentinel://a,,b/primary", "no host between two commas"},
		{"redis_url: redis-cluster://a:1,b:-1\nnamespace: '{a}'", "the port must be"},
		{"redis_url: redis://a:1,b:2/0", "names several hosts"},
		{"redis_url: redis://::1:6379", "needs brackets"},
		{"redis_url: http://h", "scheme"},
		{"redis_url: redis://h/1x", "is not a number"},
		{"redis_url: 'redis://${REDIS_HOST}:6379'", "are not expanded"},
	},
	"redis_password_file": {{"redis_password_file: /no/such", "no such file"}, {"redis_password_file: /", "is a directory"}},
	"redis_ca_file":       {{"redis_ca_file: /etc/passwd", "does not use TLS"}, {"redis_ca_file: /etc/passwd\nredis_url: rediss://h", "no PEM certificate"}},
	"redis_cert_file":     {{"redis_cert_file: /etc/passwd\nredis_url: rediss://h", "no PEM certificate"}},
	"redis_key_file":      {{"redis_key_file: /etc/passwd\nredis_url: rediss://h", "no PEM private key"}},
	"allow_eviction":      {{"allow_eviction: maybe", "true or false"}},
	"namespace":           {{"namespace: 'a b'", "spaces"}, {"namespace: 'a:'", "colon"}, {"namespace: ''", "empty"}},
	"database_url": {
		{"database_url: mysql://h/x", "not of PostgreSQL"},
		{"database_url: postgres://h:99999/x", "the port must be"},
		{"database_url: h/x", "not a URL"},
		{"database_url: 'postgres://${USER}@h/x'", "are not expanded"},
	},
	"database_url_file": {{"database_url_file: /no/such", "no such file"}},
	"worker_count":      {{"worker_count: 0", "must be 1"}, {"worker_count: 1e3", "whole number"}, {"worker_count: 010", "write 10, or put it in quotes"}, {"worker_count: 4000", "must be 1"}},
	"thread_count":      {{"thread_count: -1", "must be 1"}, {"thread_count: 0x10", "whole number"}, {"thread_count: 1_000", "whole number"}},
	"jobs_per_fork":     {{"jobs_per_fork: many", "whole number"}},
	"max_rss":           {{"max_rss: 512", "a number without a unit is bytes"}, {"max_rss: 1 gig", "not a size"}},
	"max_age":           {{"max_age: 1y", "not a duration"}, {"max_age: 10ms", "at least 1s"}, {"max_age: 53w", "too large"}},
	"max_retiring":      {{"max_retiring: 2", "at most worker_count"}},
	"queues": {
		{"queues: [mail:99]\nthread_count: 16", "warn: mail:99 caps nothing: the threads of the whole daemon are 16."},
		{"queues: ['mail:0%%']", "a cap is a whole number"},
		{"queues: ['mail:25%%']", "a cap is a whole number"},
		{"queues: ['mail:25 % %']", "a cap is a whole number"},
		{"queues: ['mail:']", `warn: "mail:" is the queue of that name, without a cap, which would be a number: "mail:8".`},
		{"queues: mail critical", `warn: "mail critical" is one queue; a comma separates queues, " " does not.`},
		{"queues: mail;critical", `warn: "mail;critical" is one queue`},
		{"queues: all", `warn: "all" is the queue of that name; all queues are "*".`},
		{"queues: ['mail:1.5']", "a cap is a whole number"},
		{"queues: ['mail:-1']", "a cap is a whole number"},
		{"queues: [mail, mail]", "listed already"},
	},
	"interval":    {{"interval: 0.00001", "must be 1ms"}, {"interval: 2d", "must be 1ms"}},
	"until_empty": {{"until_empty: ja", "true or false"}},
	"redact": {
		{"redact: {Mail: [token]}", "does not begin with args"},
		{"redact: {Mail: args.0}", "must be a list of paths"},
		{"redact: [args]", "list"},
		{"redact: {'[a': [args]}", "never closed"},
		{"redact: {Mail: []}", "which arguments"},
		{"redact: {Mail: [args.0], Mail: [args.1]}", "given already"},
		{"redact: Mail", "has no path"},
		{"redact: {Mail: ['args.a b']}", "use args.0.name"},
		{"redact: {Mail: [[args]]}", "one value"},
		{"redact: {'a;b': [args]}", "not a class"},
		{"redact: {A: ['args,args.0']}", "does not begin with args"},
	},
	"drain_timeout":       {{"drain_timeout: 1 m", "not a duration"}, {"drain_timeout: -1", "negative"}},
	"resque_term_timeout": {{"resque_term_timeout: 0", "above 0"}},
	"on_master_death":     {{"on_master_death: stop", "not known"}},
	"on_worker_death":     {{"on_worker_death: retry", "not known"}},
	"max_deaths":          {{"max_deaths: 0", "must be 1"}, {"max_deaths: 5\non_worker_death: fail", "warn: max_deaths"}},
	"host_dead_hook": {
		{"host_dead_hook: fence --off", "write it as a list, [fence, --off]; no shell is involved"},
		{"host_dead_hook: ['', a]", "names no program"},
		{"host_dead_hook: [fence, \"a\\0b\"]", "must not hold NUL bytes"},
		{"host_dead_hook: {command: [fence]}", "must be one value, not a map"},
	},
	"host_dead_after": {
		{"host_dead_hook: [fence]\nhost_dead_after: 5s", "must be 0 (two and a half beats) or at least 6s"}, {"host_dead_after: 20s", "warn: host_dead_after (resqued.yaml:1) has no effect: there is no host_dead_hook."},
	},
	"host_dead_timeout": {
		{"host_dead_timeout: 0", "must be 1s to 1h"}, {"host_dead_timeout: 2h", "must be 1s to 1h"}, {"host_dead_timeout: 10s", "warn: host_dead_timeout (resqued.yaml:1) has no effect"},
	},
	"failure_backend":  {{"failure_backend: redis", "not known"}},
	"long_job_silence": {{"long_job_silence: 0", "above 0"}},
	"long_job_wait":    {{"long_job_wait: soon", "not a duration"}},
	"prune_queues":     {{"prune_queues: 1ms", "at least 1s"}, {"prune_queues: week", "not a duration"}},
	"pidfile":          {{"pidfile: \"a\\0b\"", "control characters"}},
	"control_socket":   {{"control_socket: \"a\\0b\"", "control characters"}},
	"statsd_host": {
		{"statsd_host: http://stats.example", `must be a host alone; write "stats.example"`},
		{"statsd_host: udp://stats.example:8125", `must be a host alone; write "stats.example", and statsd_port: 8125`},
		{"statsd_host: stats.example:8125", `must be a host alone; write "stats.example", and statsd_port: 8125`},
		{"statsd_host: '[::1]:8125'", `must be a host alone; write "::1", and statsd_port: 8125`},
		{"statsd_host: '[::1]'", `must be a host alone; write "::1"`},
		{"statsd_host: /run/statsd.sock", "what is sent goes over UDP"},
		{"statsd_host: 'a, b'", "must be one host"},
		{"statsd_host: user@h", "must be one host"},
		{"statsd_host: http://", "must be a host"},
	},
	"statsd_port":         {{"statsd_port: 99999", "must be 1 to 65535"}, {"statsd_port: 0", "must be 1"}, {"statsd_port: 8125", "warn: statsd_port (resqued.yaml:1) has no effect: there is no statsd_host."}},
	"statsd_key":          {{"statsd_key: app", "warn: statsd_key (resqued.yaml:1) has no effect"}},
	"locketed_queues":     {{"locketed_queues: none", `warn: locketed_queues: "none" is the queue of that name; no queue at all is an empty list.`}, {"locketed_queues: ['mail:8']", "no meaning here"}, {"locketed_queues: ['mail:8%%']", "no meaning here"}},
	"heartbeat_frequency": {{"heartbeat_frequency: 40", "must be below job_lock_duration"}, {"heartbeat_frequency: 0.5", "whole seconds"}},
	"job_lock_duration":   {{"job_lock_duration: 1", "must be below job_lock_duration"}, {"job_lock_duration: 10\nheartbeat_frequency: 10", "must be below job_lock_duration"}, {"job_lock_duration: 35ms", "whole seconds"}},
	"job_lock_key":        {{"job_lock_key: class", "not known"}, {"job_lock_key: '{{args.x'", "character"}},
	"lines":               {{"lines: on", "not known"}},
	"within": {
		{"within: mail", `"mail" has no time`},
		{"within: [mail]", "list"},
		{"within: {mail: soon}", `queue "mail"`},
		{"within: {mail: 0}", "must be 1s to"},
		{"within: {mail: -1m}", `queue "mail"`},
		{"within: {mail: [1m]}", "must be one value"},
		{"within: {'!mail': 1m}", "is not a queue"},
		{"within: {'a,b': 1m}", "is not a queue"},
		{"within: {'img_[': 1m}", "is not a queue"},
		{"within: {mail: 1m, mail: 2m}", "given already"},
		{"within: {mail: name}", "says no time"},
	},
	"fair": {
		{"fair: mail", "must be a map of queues"},
		{"fair: [mail]", "list"},
		{"fair: {mail: {}}", "has no key"},
		{"fair: {mail: ''}", "has no key"},
		{"fair: {mail: [a]}", "must be one value"},
		{"fair: {mail: tenant}", "refers to nothing"},
		{"fair: {mail: '{{arg.0}}'}", "known are class, queue"},
		{"fair: {'mail*': '{{args.0}}'}", "must be one queue"},
		{"fair: {mail: {kye: '{{args.0}}'}}", `did you mean "key"?`},
		{"fair: {mail: {key: '{{args.0}}', weights: 4}}", "must be a map of tenants to weights"},
		{"fair: {mail: {key: '{{args.0}}', weights: {big: 0}}}", "must be 1 to 1000"},
		{"fair: {mail: {key: '{{args.0}}', weights: {big: 1.5}}}", "not a whole number"},
		{"fair: {mail: {key: '{{args.0}}', weights: {big: 1, big: 2}}}", "given already"},
		{"lines: 'off'\nfair: {mail: '{{args.0}}'}", "warn: fair (resqued.yaml:2) has no effect: lines (resqued.yaml:1) is off."},
	},
	"limits": {
		{"limits: 5", "must be a map of names to limits"},
		{"limits: [a]", "list"},
		{"limits: {two: 2}", "must be a map: {classes: [Charge], concurrency: 5}"},
		{"limits: {two: {concurrency: 2}}", "has neither classes nor queues"},
		{"limits: {two: {classes: [A]}}", "limits nothing"},
		{"limits: {two: {classes: A, concurrency: 2}}", "must be a list of names and globs"},
		{"limits: {two: {clases: [A], concurrency: 2}}", `did you mean "classes"?`},
		{"limits: {'a:b': {classes: [A], concurrency: 2}}", "the name must be 1 to 64 letters"},
		{"limits: {two: {classes: [A], concurrency: 0}}", "must be a whole number from 1 on"},
		{"limits: {two: {classes: [A], concurrency: 9999999999}}", "must be 1 to 1000000000"},
		{"limits: {two: {classes: ['A['], concurrency: 2}}", "A["},
		{"limits: {two: {classes: [A], rate: 100}}", "must be a number and a time, such as 100/1m"},
		{"limits: {two: {classes: [A], rate: 0/s}}", "the number must be 1 to"},
		{"limits: {two: {classes: [A], rate: 1/9999h}}", "the time must be more than 0"},
		{"limits: {two: {classes: [A], rate: 9999999/s}}", "more than a million a second"},
		{"limits: {two: {classes: [A], concurrency: 2, burst: 2}}", "has a burst but no rate"},
		{"limits: {two: {classes: [A], concurrency: 2, cost: 2}}", "has a cost but no rate"},
		{"limits: {two: {classes: [A], rate: 1/s, cost: '{{args.0}}'}}", "has a cost but no burst"},
		{"limits: {two: {classes: [A], rate: 1/s, burst: 2, cost: 3}}", "no job could ever run"},
		{"limits: {two: {classes: [A], rate: 1/s, burst: 2, cost: x}}", "must be a whole number from 0"},
		{"limits: {two: {classes: [A], concurrency: 2, key: '{{arg}}'}}", "known are class, queue"},
		{"limits: {two: {classes: [A], concurrency: 2, on_limit: drop}}", "must be one of wait, requeue, discard, fail, replace"},
		{"limits: {two: {classes: [A], rate: 1/s, on_limit: replace}}", "there is no concurrency"},
		{"limits: {two: {classes: [A], concurrency: 2, per: rack}}", "must be one of fleet, host, process"},
	},
	"on_lock_lost":  {{"on_lock_lost: retry", "not known"}},
	"unique_queues": {{"unique_queues: off", `warn: unique_queues: "off" is the queue of that name`}, {"unique_queues: ['!a']", "only exclusions"}},
	"unique_queues_strict": {
		{"unique_queues_strict: 2", "true or false"}, {"unique_queues_strict: true", "warn: unique_queues_strict"},
	},
	"env_keep":             {{"env_keep: A=1", "without a value"}, {"env_keep: 'A B'", "must not hold spaces; a comma separates names"}},
	"env_drop":             {{"env_drop: ['[A']", "never closed"}, {"env_drop: 'A B'", "must not hold spaces"}},
	"persistent_schedules": {{"persistent_schedules: some", "true or false"}},
	"scheduler_lock":       {{"scheduler_lock: resque", "not known"}, {"scheduler_lock: 'resque-scheduler:'", "not known"}},
	"max_payload":          {{"max_payload: 10", "at least 128; a number without a unit is bytes"}, {"max_payload: -1", "negative"}},
	"log_format":           {{"log_format: xml", "not known"}},
	"log_level":            {{"log_level: verbose", "not known"}},
	"log_jobs":             {{"log_jobs: perhaps", "true or false"}},
}

// hostileFields are the same for sections, by section and field.
var hostileFields = map[string][][2]string{
	"command": {
		{"{command: [sh, a, '|', b]}", `warn: A: command holds "|"; no shell is involved, the program gets it as it is.`},
		{"{command: [echo, $HOME]}", `warn: A: command holds "$HOME"; no shell`},
		{"{command: [~/bin/x]}", `warn: A: command holds "~/bin/x"; no shell`},
		{"{command: [echo, '{{args.0}}']}", `warn: A: command holds "{{args.0}}"; nothing of the job is put into the command`},
		{"{command: python3 a.py}", "write it as a list"},
	},
	"runner": {
		{"{runner: app}", `there is no such runner; write runners: {app: {command:`},
		{"{runner: a b}", "letters, digits"},
		{"{runner: app, command: [sh]}", "does not go with runner"},
		{"{runner: app, dir: /}", "does not go with runner"},
		{"{runner: app, env: {A: b}}", "does not go with runner"},
		{"{queue: a}", "has no command; write command: [python3, thumb.py], or runner: NAME"},
	},
	"queue":      {{"{command: [sh], queue: 'mail:8'}", `warn: A: "mail:8" is the queue of that name; a cap belongs into queues.`}, {"{command: [sh], queue: '!mail'}", "not an exclusion"}, {"{command: [sh], queue: ' mail'}", "begin or end with a space"}, {"{command: [sh], queue: 'a*'}", "must be one queue"}},
	"dir":        {{"{command: [sh], dir: \"a\\nb\"}", "control characters"}},
	"env":        {{"{command: [sh], env: {A: $HOME/x}}", "warn: A: env.A is given as it is written"}, {"{command: [sh], env: {A=B: c}}", "must not hold"}, {"{command: [sh], env: {RESQUED_FD: 1}}", "set by resqued itself"}},
	"timeout":    {{"{command: [sh], timeout: 1h, lock: {timeout: 1m}}", "warn: A: timeout 1h has no effect: lock.timeout 1m ends the job before."}, {"{command: [sh], timeout: 5 min}", "not a duration"}},
	"kill_after": {{"{command: [sh], kill_after: 1d}", "warn: A: kill_after 24h becomes 15s"}, {"{command: [sh], kill_after: 0}", "above 0"}},
	"max_run":    {{"{command: [sh], max_run: 1m}", "write on_leaving: USR2"}},
	"on_leaving": {
		{"{command: [sh], on_leaving: KILL}", `"KILL" (resqued.yaml:2): no program can catch it`},
		{"{command: [sh], on_leaving: SIGUSR2}", `"SIGUSR2" (resqued.yaml:2): write USR2`},
		{"{command: [sh], on_leaving: 12}", "one of HUP, INT, QUIT, TERM, USR1, USR2"},
		{"{runner: app, on_leaving: USR2}", "does not go with runner"},
	},
	"at_most_once": {{"{command: [sh], at_most_once: true, retry: {}}", "contradict each other"}},
	"lock":         {{"{command: [sh], lock: true}", "must be a map"}},
	"retry":        {{"{command: [sh], retry: 5}", "must be a map"}},
	"long_job":     {{"{command: [sh], long_job: true}", "no queue"}, {"{command: [sh], queue: a, long_job: 15s}", "true or false"}},

	"lock.timeout":    {{"{command: [sh], lock: {timeout: forever}}", "not a duration"}},
	"lock.args":       {{"{command: [sh], lock: {args: [first]}}", "must be the number of an argument"}, {"{command: [sh], lock: {args: 0}}", "must be a list"}},
	"lock.class_wide": {{"{command: [sh], lock: {class_wide: true, args: [0]}}", "both say what the key is"}},
	"lock.key":        {{"{command: [sh], lock: {key: 'a:{{args.0}}'}}", "not a template"}},
	"lock.loner":      {{"{command: [sh], lock: {loner: 2}}", "true or false"}},
	"lock.on_locked":  {{"{command: [sh], lock: {on_locked: wait}}", "not known"}},
	"lock.redis":      {{"{command: [sh], lock: {redis: 'redis://h:99999'}}", "the port must be"}},
	"lock.store":      {{"{command: [sh], lock: {store: mysql}}", "not known"}},

	"retry.attempts":      {{"{command: [sh], retry: {attempts: 1}}", "warn: A: retry has no effect"}, {"{command: [sh], retry: {attempts: 0}}", "must be 1"}},
	"retry.backoff":       {{"{command: [sh], retry: {attempts: 2, backoff: [1s, 2s]}}", "warn: A: of 2 waits in retry.backoff only the first 1"}, {"{command: [sh], retry: {backoff: {base: 1h, max: 1m}}}", "less than base"}},
	"retry.retry_on":      {{"{command: [sh], retry: {retry_on: {exit_codes: [75]}}}", "is not a failure"}},
	"retry.never_on":      {{"{command: [sh], retry: {retry_on: {exceptions: [A]}, never_on: {exceptions: [A]}}}", `warn: A: "A" is in retry_on and in never_on, which wins.`}, {"{command: [sh], retry: {never_on: {messages: ['(']}}}", "regular expression"}},
	"retry.ignore_deaths": {{"{command: [sh], retry: {ignore_deaths: 3}}", "true or false"}},
	"retry.expire_after":  {{"{command: [sh], retry: {expire_after: 1.5}}", "whole seconds"}},

	"long_job.requeue_queue": {{"{command: [sh], queue: a, long_job: {requeue_queue: 'low:2'}}", `warn: A: "low:2" is the queue of that name`}},
	"long_job.slice":         {{"{command: [sh], queue: a, long_job: {slice: 0}}", "above 0"}},
	"long_job.grace":         {{"{command: [sh], queue: a, long_job: {grace: 0}}", "above 0"}},
	"long_job.check_in":      {{"{command: [sh], queue: a, long_job: {check_in: 10m}}", "warn: A: long_job.check_in 10m is not below long_job_silence 5m (default)"}},
	"long_job.retries":       {{"{command: [sh], queue: a, long_job: {retries: -1}}", "must be 0"}},
	"long_job.retry_after":   {{"{command: [sh], queue: a, long_job: {retry_after: 0}}", "above 0"}},
	"long_job.max_deaths":    {{"{command: [sh], queue: a, long_job: {max_deaths: 0}}", "must be 1"}},
	"long_job.keep":          {{"{command: [sh], queue: a, long_job: {keep: 0}}", "above 0"}},
	"long_job.tenant_slices": {{"{command: [sh], queue: a, long_job: {tenant_slices: 0}}", "must be 1"}},
	"long_job.uuid_argument": {{"{command: [sh], queue: a, long_job: {uuid_argument: 2}}", "true or false"}},
	"long_job.state_limit":   {{"{command: [sh], queue: a, long_job: {state_limit: 1GB}}", "must be 1KiB"}},

	"runners.command": {
		{"{command: ruby a.rb}", "write it as a list, [ruby, a.rb]; no shell is involved"},
		{"{}", "has no command"},
		{"{command: []}", "names no program"},
		{"{command: [ruby, \"a\\0b\"]}", "must not hold NUL bytes"},
		{"{command: [ruby, '|', b]}", `warn: runner R: command holds "|"; no shell is involved`},
		{"{command: [ruby, '{{args.0}}']}", `warn: runner R: command holds "{{args.0}}"; nothing of the job is put into the command: the program gets the jobs over its socket`},
		{"{command: [ruby], threads: 4}", `did you mean "concurrency"?`},
		{"{command: [ruby], jobs_per_fork: 4}", `did you mean "jobs_per_runner"?`},
		{"{command: [ruby], boot_timeot: 4}", `did you mean "boot_timeout"?`},
		{"{command: [ruby], cwd: /}", `did you mean "dir"?`},
		{"{command: [ruby], lock: {}}", "unknown key"},
		{"[ruby]", "must be a map"},
		{"{command: [ruby], dir: /, dir: /}", "given already"},
		{"{command: [ruby]}", "warn: runner R: no handler names it, so it does not run."},
	},
	"runners.dir":             {{"{command: [ruby], dir: \"a\\nb\"}", "control characters"}},
	"runners.env":             {{"{command: [ruby], env: {A: $HOME/x}}", "warn: runner R: env.A is given as it is written"}, {"{command: [ruby], env: {RESQUED_FORK_FD: 4}}", "set by resqued itself"}, {"{command: [ruby], env: [A]}", "must be a map"}},
	"runners.fork":            {{"{command: [ruby], fork: 2}", "true or false"}},
	"runners.concurrency":     {{"{command: [ruby], concurrency: 0}", "must be 1"}, {"{command: [ruby], concurrency: 1e3}", "whole number"}, {"{command: [ruby], concurrency: 2}", "warn: runner R: concurrency 2 is more than the threads of a worker process (1, default)"}},
	"runners.boot_timeout":    {{"{command: [ruby], boot_timeout: 0}", "above 0"}, {"{command: [ruby], boot_timeout: soon}", "not a duration"}},
	"runners.jobs_per_runner": {{"{command: [ruby], jobs_per_runner: -1}", "must be 0"}},
	"runners.max_rss":         {{"{command: [ruby], max_rss: 512}", "a number without a unit is bytes"}, {"{command: [ruby], max_rss: 1 gig}", "not a size"}},
	"runners.max_age":         {{"{command: [ruby], max_age: 1ms}", "at least 1s"}},
	"runners.kill_after":      {{"{command: [ruby], kill_after: 0}", "above 0"}, {"{command: [ruby], kill_after: 1d}", "warn: runner R: kill_after 24h becomes 15s"}},
	"runners.classes":         {{"{command: [ruby], classes: Mail}", "must be a list"}, {"{command: [ruby], classes: []}", "would perform nothing"}, {"{command: [ruby], classes: ['!A']}", "only exclusions"}, {"{command: [ruby], classes: ['[A']}", "never closed"}, {"{command: [ruby], classes: [A, A]}", "listed already"}, {"{command: [ruby], classes: [' A']}", "begin or end with a space"}},

	"stores.redis_url": {
		{"{queues: [a], redis_url: redis://h:99999}", "the port must be a number from 1 to 65535"},
		{"{queues: [a], namespace: other}", "stores.s (default): has the redis_url and the namespace of store other"},
		{"[a]", "must be a map"},
		{"{queues: [a], redis_ulr: redis://h}", `did you mean "redis_url"?`},
		{"{queues: [a], log_level: debug}", "holds for all stores"},
		{"{queues: [a], handlers: {}}", "holds for all stores"},
		{"{queues: [a]}\n  S: {queues: [b]}", "small letters, digits"},
		{"{queues: [a]}\n  s: {queues: [b]}", "given already"},
		{"{queues: [a]}\nqueues: [b]", "belongs to each store"},
		{"{queues: [other], namespace: s}", "warn: store s works queue other, which belongs to store other"},
	},
	"stores.redis_password_file": {{"{queues: [a], redis_password_file: /no/such}", "no such file"}},
	"stores.redis_ca_file":       {{"{queues: [a], redis_ca_file: /etc/passwd}", "does not use TLS"}},
	"stores.redis_cert_file":     {{"{queues: [a], redis_cert_file: /etc/passwd}", "does not use TLS"}},
	"stores.redis_key_file":      {{"{queues: [a], redis_key_file: /etc/passwd}", "does not use TLS"}},
	"stores.allow_eviction":      {{"{queues: [a], allow_eviction: 2}", "true or false"}},
	"stores.namespace":           {{"{queues: [a], namespace: 'a b'}", "spaces"}, {"{queues: [a], redis_url: 'redis-cluster://h'}", "hash-tagged namespace"}},
	"stores.queues":              {{"{queues: ['mail:1.5']}", "a cap is a whole number"}, {"{}", "has no queues"}, {"{namespace: s}", "has no queues"}},
	"stores.routes":              {{"{routes: ['mail:8'], namespace: s}", "no meaning here"}, {"{routes: ['!a'], namespace: s}", "only exclusions"}, {"{routes: [], namespace: s}", "names no queues"}, {"{routes: {a: b}, namespace: s}", "must be one value"}},
	"stores.worker_count":        {{"{queues: [a], worker_count: 0}", "must be 1"}},
	"stores.thread_count":        {{"{queues: [a], thread_count: x}", "whole number"}},
	"stores.jobs_per_fork":       {{"{queues: [a], jobs_per_fork: many}", "whole number"}},
	"stores.max_rss":             {{"{queues: [a], max_rss: 512}", "a number without a unit is bytes"}},
	"stores.max_age":             {{"{queues: [a], max_age: 1y}", "not a duration"}},
	"stores.max_retiring":        {{"{queues: [a], max_retiring: 9}", "at most worker_count"}},
	"stores.interval":            {{"{queues: [a], interval: 2d}", "must be 1ms"}},
	"stores.waker":               {{"{queues: [a], waker: maybe}", "write auto, on or off"}},
	"stores.statsd_key":          {{"{queues: [a], namespace: s, statsd_key: k}", "warn: statsd_key"}},

	"schedule.cron": {
		{"{cron: '0 25 * * *'}", "schedule.S.cron"}, {"{cron: '0 0 30 2 *'}", "schedule.S.cron"}, {"{cron: daily}", "schedule.S.cron"}, {"{cron: '@daily', every: 1h}", "schedule.S"},
	},
	"schedule.every":       {{"{every: 0s}", "schedule.S.every"}, {"{every: often}", "schedule.S.every"}, {"{every: -1h}", "schedule.S.every"}},
	"schedule.first_in":    {{"{every: 1h, first_in: later}", "schedule.S"}, {"{cron: '@daily', first_in: 1h}", "schedule.S"}},
	"schedule.timezone":    {{"{cron: '@daily', timezone: Mars/Base}", "schedule.S"}, {"{every: 1h, timezone: Europe/Berlin}", "schedule.S"}},
	"schedule.class":       {{"{cron: '@daily', class: ''}", "class name is empty"}, {"{cron: '@daily', class: 'A '}", "begin or end with a space"}},
	"schedule.queue":       {{"{cron: '@daily', queue: 'a,b'}", "must be one queue"}, {"{cron: '@daily', queue: 'a:8'}", `warn: schedule S: "a:8" is the queue of that name`}},
	"schedule.args":        {{"{cron: '@daily', args: [.nan]}", "not a number in JSON"}},
	"schedule.if_running":  {{"{cron: '@daily', if_running: wait}", "not known"}},
	"schedule.catch_up":    {{"{cron: '@daily', catch_up: 3}", "not known"}},
	"schedule.description": {{"{cron: '@daily', description: \"a\\tb\"}", "control characters"}},
}

func TestHostileValues(t *testing.T) {
	t.Parallel()
	judge := func(t *testing.T, yaml, want string) {
		t.Helper()
		r, err := from{yaml: yaml}.load(t)
		warning, warned := strings.CutPrefix(want, "warn: ")
		if !warned {
			require.ErrorContains(t, err, want, yaml)
			return
		}
		require.NoError(t, err, yaml)
		var all []string
		for _, w := range r.Warnings {
			all = append(all, strings.ReplaceAll(w.Message, filepath.Dir(r.File)+"/", ""))
		}
		require.True(t, slices.ContainsFunc(all, func(text string) bool { return strings.HasPrefix(text, warning) }), "%s: %q", yaml, all)
	}
	t.Run("every key has some", func(t *testing.T) {
		t.Parallel()
		for _, k := range keys() {
			if k.name != "waker" { // one of a few words
				require.NotEmpty(t, hostile[k.name], k.name)
			}
			for _, one := range hostile[k.name] {
				judge(t, one[0], one[1])
			}
		}
	})
	t.Run("and every field of the sections", func(t *testing.T) {
		t.Parallel()
		for section, fields := range map[string][]string{
			"": new(Handler).fields().names(), "lock.": new(HandlerLock).fields().names(), "retry.": new(HandlerRetry).fields().names(), "long_job.": new(HandlerLongJob).fields().names(), "schedule.": scheduleRules(new(schedule.Definition)).names(), "runners.": new(Runner).fields().names(), "stores.": storeFields,
		} {
			for _, name := range fields {
				require.NotEmpty(t, hostileFields[section+name], section+name)
				for _, one := range hostileFields[section+name] {
					head := "handlers:\n  A: "
					switch section {
					case "schedule.":
						head = "schedule:\n  S: "
					case "runners.":
						head = "runners:\n  R: "
					case "stores.":
						head = "stores:\n  other: {queues: [other], namespace: other}\n  s: "
					}
					judge(t, head+one[0]+"\n", one[1])
				}
			}
		}
	})
}

func TestYAMLMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"handlers:\n  A:\n\tcommand: [a]\n":                  "resqued.yaml:3: the line is indented by a tab; YAML wants spaces",
		"queues:\n\t- a\n":                                   "resqued.yaml:2: the line is indented by a tab; YAML wants spaces",
		"handlers:\n  A:\n  \tcommand: [a]\n\nqueues: [a]\n": "resqued.yaml:3: the line is indented by a tab; YAML wants spaces",
		"a: |\n  text\n  \t\n\nqueues:\n- a\n\t- b\n":        "resqued.yaml:7: the line is indented by a tab; YAML wants spaces",
		"queues: [a]\n\t\nnamespace: a":                      "resqued.yaml:2: the line is indented by a tab; YAML wants spaces",
		"namespace: @app\n":                                  `needs quotes, and a tab is not a space`,
		"namespace: %app\n":                                  `needs quotes, and a tab is not a space`,
		"namespace: a: b\n":                                  `a value with ": " in it needs quotes`,
		"namespace: \"app\n":                                 "a quote or a bracket is never closed",
	} {
		_, err := from{yaml: text}.load(t)
		require.ErrorContains(t, err, want, text)
	}
	_, err := from{yaml: "queues: [a]\t# a tab elsewhere is none\n\nnamespace: a"}.load(t)
	require.NoError(t, err)
}

func TestPrograms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "there.py"), nil, 0o600))
	here, err := os.Getwd()
	require.NoError(t, err)
	for command, want := range map[string]string{
		"[sh, there.py], dir: DIR":                 "",
		"[sh, missing.sh], dir: DIR":               `A: there is no script "missing.sh" in "DIR"`,
		"[/usr/bin/env, sh, missing.sh], dir: DIR": `A: there is no script "missing.sh" in "DIR"`,
		"[sh, -eu, missing.sh], dir: DIR":          `A: there is no script "missing.sh" in "DIR"`,
		"[sh, DIR/missing.sh]":                     `A: there is no script "DIR/missing.sh" here`,
		"[sh, missing.sh]":                         `A: there is no script "missing.sh" in "` + here + `", the directory of this process; write the whole path, or set dir`,
		"[sh, DIR]":                                `A: "DIR" is a directory, no script`,
		"[sh, -c, missing.sh], dir: DIR":           "",
		"[sh, -m, missing], dir: DIR":              "",
		"[sh], dir: DIR":                           "",
		"['sh there.py'], dir: DIR":                `A: there is no program "sh there.py" here, or it may not be executed; its arguments are entries of their own: [sh, there.py]`,
		"[cat, missing.txt], dir: DIR":             "",
	} {
		r := from{yaml: "handlers: {A: {command: " + strings.ReplaceAll(command, "DIR", dir) + "}}"}.mustLoad(t)
		var got []string
		for _, w := range CheckPrograms(r.Config) {
			got = append(got, strings.ReplaceAll(w.Message, dir, "DIR"))
		}
		require.Equal(t, want, strings.Join(got, "\n"), command)
	}
	require.Equal(t, "x.py", scriptOf([]string{"/usr/bin/python3.12", "-u", "x.py"}))
	require.Empty(t, scriptOf([]string{"env"}))
}

func TestPIDFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for file, want := range map[string]string{
		dir + "/pid": "", "pid": "",
		dir + "/no/pid":  `pidfile "DIR/no/pid" (environment PIDFILE): there is no directory DIR/no; make it (under systemd RuntimeDirectory= does), or name another file`,
		dir:              `pidfile "DIR" (environment PIDFILE): is a directory; name a file in it`,
		"/dev/null/file": `pidfile "/dev/null/file" (environment PIDFILE): /dev/null is not a directory`,
	} {
		err := from{env: "PIDFILE=" + file}.mustLoad(t).CheckPIDFile()
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, want, strings.ReplaceAll(err.Error(), dir, "DIR"))
	}
}
