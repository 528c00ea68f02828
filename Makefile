# resqued's everyday commands; `make help` lists them.

GO      ?= go
# Every tool runs from tools/go.mod, so that none becomes a dependency of resqued.
TOOL    := $(GO) tool -modfile=$(CURDIR)/tools/go.mod
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# One line per package, the output of what failed, and the totals at the end.
TESTS   := $(TOOL) gotestsum --format pkgname --hide-summary skipped
# Property tests take the same examples each time, so that a change is judged by what it
# changes. `make model` and `make explore` look for others: RAPID_SEED=0.
export RAPID_SEED ?= 1
# With RERUN=<folder> a test that fails is run again, and what passes only then is noted in that
# folder as flaky.
RERUN   ?=
export RERUN

# The sequences of `make model`.
MODEL   ?= 50000

# scripts/provide looks in these places too.
export PATH := $(PATH):/usr/local/bin:/usr/local/sbin:/usr/sbin

.DEFAULT_GOAL := help
.PHONY: help build unit check lint cross test nightly every-test every-chaos alerts deb race system model explore chaos chaos-defects bench microbench apidiff vulnerabilities package package-test release runners repositories cut reproduce licenses docs fuzz clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 15

build: ## build bin/resqued
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X github.com/resqued/resqued/internal/cli.Version=$(VERSION)' -o bin/resqued ./cmd/resqued

unit: ## the tests that start neither servers nor processes, in seconds
	RESQUED_TEST_LEVEL=unit $(TESTS) -- -short -vet=off ./...

# The packages that take longest mostly wait, so twice as many run side by side.
check: lint ## the quick look before a commit: linter, and the short tests
	@command -v redis-server >/dev/null && command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && command -v mariadbd >/dev/null || sh scripts/provide
	$(TESTS) -- -short -parallel 8 -p $$((2 * $$(nproc))) ./...
	cd test/dashboard && $(GO) test -short ./...

lint: ## run the linter (.golangci.yml)
	$(TOOL) golangci-lint run ./...
	cd bench && $(TOOL) golangci-lint run ./...
	cd test/dashboard && $(TOOL) golangci-lint run ./...
	cd tools && $(GO) tool golangci-lint run ./...

cross: ## build and vet for Linux on arm64, macOS, and (programs that enqueue) Windows
	sh scripts/cross

# The packages that make test runs with the race detector: the production code of each starts
# goroutines in the process of its tests. test/house compares this list with the code.
RACE    := ./client ./internal/app ./internal/cli ./internal/sys/control ./internal/app/deadhost ./internal/devredis ./internal/handler ./internal/sys/launch ./internal/locket/classlock ./internal/locket/classlock/postgres ./internal/sys/logqueue ./internal/master ./internal/sys/program ./internal/thread/retry ./internal/runner ./internal/signals ./internal/statsd ./internal/runner/template ./internal/web ./internal/workerproc ./locker ./longjob ./longjob/sqlscan ./resquedtest ./web

test: ## install what the tests need, then run all that judge a change
	sh scripts/provide
	@RACE='$(RACE)' TESTS='$(TESTS)' sh scripts/tests

# The packages of the scripts.
SCRIPTS := ./internal/store ./internal/longstore

# Before an issue is resolved, and each night. With `make -k nightly` a part that fails does not
# keep the others from running.
nightly: every-test race explore chaos-defects every-chaos alerts deb docs ## what make test leaves out: all tests, defects, faults and races (hours)

every-test:
	sh scripts/provide
	RESQUED_TEST_LEVEL=nightly $(TESTS) --packages '$(SCRIPTS) ./test/system ./test/sim' -- -count=1 -parallel 8 -timeout 60m
	@sh scripts/valkey $(GO) test -short -timeout 25m ./internal/store

every-chaos:
	$(MAKE) chaos CHAOS='-profile long -duration 10m'

# A module of its own, because the engine of Prometheus takes a minute to build.
alerts:
	sh scripts/provide
	cd test/alerts && $(TOOL) golangci-lint run ./... && $(TESTS) -- -count=1 -timeout 20m

# What make packages, repositories and packages of runners, and what their tests install.
CHANNELS := apt-ftparchive:apt-utils createrepo_c:createrepo-c gpg:gpg rpm:rpm dnf:dnf pip3:python3-pip+python3-wheel npm:npm ruby:ruby

deb:
	sh scripts/provide $(CHANNELS)
	RESQUED_TEST_PACKAGES=deb $(TESTS) -- -count=1 -timeout 20m ./test/packages

race: ## all tests with the race detector, those of the system against a daemon with it
	sh scripts/provide
	$(TESTS) --packages "$$($(GO) list ./... | grep -v /test/ | tr '\n' ' ')" -- -race -count=1 -parallel 8 -timeout 60m
	RESQUED_TEST_RACE=1 RESQUED_TEST_LEVEL=nightly $(TESTS) -- -race -count=1 -timeout 60m ./test/...
	cd test/dashboard && $(TESTS) -- -race -count=1 -timeout 20m

system: ## the system tests at full size, 20,000 jobs a run, with their figures
	sh scripts/provide
	RESQUED_TEST_FULL=1 RESQUED_TEST_LEVEL=nightly $(TOOL) gotestsum --format standard-verbose -- -timeout 30m ./test/... ./locker

model: ## the model tests of the scripts, MODEL (50,000) random sequences, and some of long jobs
	sh scripts/provide
	RAPID_SEED=0 $(GO) test -run '^Test(Long)?Model(Fair)?$$' -v -timeout 0 $(SCRIPTS) -rapid.checks=$$(($(MODEL) / 10))

# The packages with property tests; the scripts' own are those of `make model`.
explore: ## the property tests with examples that were never tried, 1,000 each
	sh scripts/provide
	RAPID_SEED=0 RAPID_CHECKS=1000 $(GO) test -timeout 25m $$($(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | sed -n 's/ .*pgregory.net\/rapid.*//p' | grep -v '/internal/\(long\)\?store$$')
	$(MAKE) model MODEL=2000

# What to do with it: CHAOS='-profile long -duration 30m', or a run again: CHAOS='-seed 7', or
# beside another version: CHAOS='-previous HEAD^'.
CHAOS   ?= -profile short

chaos: ## inject every kind of fault for 3 minutes and check that nothing is lost
	sh scripts/provide
	$(GO) run ./test/chaos $(CHAOS)

# Some of it: DEFECTS='-only fencing', DEFECTS=-list.
DEFECTS ?=

chaos-defects: ## build resqued with one defect at a time and check that chaos finds it (20 minutes)
	sh scripts/provide
	$(GO) run ./test/chaos/defects $(DEFECTS)

# What to measure: BENCH=-short, BENCH='-scenario noop-50 -peer resqued,asynq'.
BENCH   ?=

bench: ## compare resqued with its peers (about 40 minutes; BENCH=-short about 3)
	sh scripts/provide
	cd bench && CGO_ENABLED=0 $(GO) run . $(BENCH)

microbench: ## the benchmarks of single packages
	$(GO) test -run '^$$' -bench . -benchmem ./...

apidiff: ## compare what the packages export with the last release
	sh scripts/apidiff

vulnerabilities: ## look for known vulnerabilities in what resqued calls
	$(GO) run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ./...

docs: ## make the documentation as a site in bin/docs, with mkdocs
	@command -v mkdocs >/dev/null || sh scripts/provide mkdocs:mkdocs+mkdocs-material
	rm -rf bin/pages && mkdir -p bin/pages && cp -r README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md docs bin/pages
	mkdocs build --strict --quiet

fuzz: ## run each fuzzer for FUZZTIME (10s) and keep what reaches new code
	sh scripts/fuzz

package: ## build .deb and .rpm for amd64 and arm64 in dist
	sh scripts/release packages

package-test: ## install, upgrade under load and remove the packages under a real systemd (as root)
	sh scripts/provide $(CHANNELS)
	cd tools && $(GO) test ./release
	RESQUED_TEST_PACKAGES=1 $(TESTS) -- -timeout 25m ./test/packages

release: licenses ## build all of a release in dist: archives, packages, bills of materials, checksums
	sh scripts/release

runners: ## build the runners as a gem, a wheel and a tarball for npm in dist
	sh scripts/runners dist

repositories: ## make apt and yum repositories of the packages in dist; SIGN_KEY signs them
	sh scripts/repositories dist

cut: ## give what is unreleased in CHANGELOG.md a version: make cut VERSION=v1.2.3
	sh scripts/release cut '$(VERSION)'

reproduce: ## build a release of HEAD twice, in two places, and compare the checksums
	sh scripts/reproduce

licenses: ## check the licences of all dependencies
	$(GO) build -C tools -o $(CURDIR)/bin/release ./release && bin/release licenses

clean: ## remove what these targets built
	rm -rf bin dist
