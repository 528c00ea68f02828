package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
)

func (a *cli) configCommand() *cobra.Command {
	var connects bool
	check := a.command(verb{
		use: "check", kind: reads, short: "check the configuration",
		long: `Read the configuration as "work" does and report every mistake. Also report how
many tasks (kernel threads) the daemon may need, and warn if a limit of this
process is lower.

With --connect, also try Redis (connection, password, version, role, eviction
policy and every script), statsd (one datagram) and, for class locks there,
PostgreSQL.

Exit codes: 2 wrong configuration, 69 a server cannot be reached, 1 a server
refuses something.`,
		flags: func(f *flagSet) { f.BoolVar(&connects, "connect", false, "also try Redis, statsd and PostgreSQL") },
		do:    func(c *cobra.Command, _ []string) error { return a.configCheck(c, connects) },
	})
	show := a.command(verb{
		use: "show", kind: noRedis, short: "show every value and where it comes from",
		do: func(c *cobra.Command, _ []string) error {
			r, err := a.loadAs(c, config.Options{})
			if err != nil {
				return err
			}
			return a.eachStore(r, a.showConfig)
		},
	})
	for _, c := range []*cobra.Command{check, show} {
		config.AddFlags(c.Flags())
		config.AddRunnerFlag(c.Flags())
	}
	return a.command(verb{use: "config", kind: noRedis, short: "check, show, compare or write a configuration"}, check, show, a.configDiffCommand(), a.configInitCommand())
}

type configReport struct {
	// Store is the store of this report, if the file has several.
	Store string `json:"store,omitempty"`
	OK    bool   `json:"ok"`
	File  string `json:"file,omitempty"`
	// FileFrom is what named the file, EnvFile the service's environment file that was also read.
	FileFrom *config.Source `json:"file_from,omitempty"`
	EnvFile  string         `json:"env_file,omitempty"`
	Threads  int            `json:"threads"`
	// Tasks are the kernel tasks that the daemon may need, one for each command.
	Tasks       int               `json:"tasks"`
	Warnings    []config.Warning  `json:"warnings"`
	Hints       []string          `json:"hints,omitempty"`
	Connections []connection      `json:"connections,omitempty"`
	Errors      config.Errors     `json:"errors,omitempty"`
	Plan        []config.PlanLine `json:"plan,omitempty"`
	Config      json.RawMessage   `json:"config,omitempty"`
}

func (a *cli) configCheck(c *cobra.Command, connects bool) error {
	r, err := a.loadAs(c, config.Options{NeedQueues: true, RunsPrograms: true})
	if err != nil {
		return err
	}
	for _, w := range r.Warnings {
		if w.Key == "stores" && a.flags.output != outJSON {
			a.warn("%s", w.Message)
		}
	}
	return a.eachStore(r, func(one *config.Resolved) (configReport, string, error) { return a.checkOne(c, one, connects) })
}

// eachStore prints what a verb reports about each store, as one text or in JSON. It returns the
// first error that is not an exit code, after all stores.
func (a *cli) eachStore(r *config.Resolved, read func(*config.Resolved) (configReport, string, error)) error {
	var reports []configReport
	var b strings.Builder
	var first error
	for i, one := range each(r) {
		a.loaded = one
		report, text, err := read(one)
		var code exitCode
		if err != nil && !errors.As(err, &code) {
			return err
		}
		first = cmp.Or(first, err)
		if len(r.Stores) > 0 {
			report.Store = one.Store
			text = strings.Repeat("\n", min(i, 1)) + "store " + one.Store + "\n" + text
		}
		reports = append(reports, report)
		b.WriteString(text)
	}
	var err error
	switch {
	case a.flags.output != outJSON:
		err = a.printText(b.String())
	case len(r.Stores) > 0:
		err = a.printJSON(map[string][]configReport{"stores": reports})
	default:
		err = a.printJSON(reports[0])
	}
	if err != nil {
		return err
	}
	return first
}

func (a *cli) checkOne(c *cobra.Command, r *config.Resolved, connects bool) (report configReport, text string, err error) {
	if err := a.checkServers(r.Config); err != nil {
		return report, "", err
	}
	warnings := append(r.Warnings, a.program().Warnings(r)...)
	if lacking, ok := errors.AsType[config.Errors](r.CheckPIDFile()); ok { // perhaps a directory that only the service has
		for _, one := range lacking {
			warnings = append(warnings, config.Warning{Key: one.Key, Code: "no_directory", Message: one.Error()})
		}
	}
	hints := hints(r, a.name)
	var tried []connection
	if connects {
		tried = a.connect(c, r)
	}
	report, err = a.reportOf(r, warnings), connectExit(tried)
	report.Hints, report.Connections, report.OK = hints, tried, err == nil
	var b strings.Builder
	for _, w := range warnings {
		b.WriteString(a.paint(yellow, "warn") + "  " + w.Message + "\n")
	}
	for _, hint := range hints {
		b.WriteString("hint  " + hint + "\n")
	}
	if r.Store != "" && len(r.Queues.Patterns) == 0 {
		return report, b.String() + a.paint(green, "ok") + "    no queues of its own here: jobs are enqueued to it\n" + a.connectText(tried), err
	}
	b.WriteString(a.paint(green, "ok") + "    " + plural(r.Threads(), "thread") + ", queues " + r.Queues.String() + "\n")
	b.WriteString("      up to " + app.TasksText(a.program().Tasks(r)) + " (TasksMax=)\n" + a.connectText(tried))
	return report, b.String(), err
}

func hints(r *config.Resolved, name string) []string {
	if !r.Defaults() {
		return nil
	}
	return []string{config.DefaultsHint(app.Tuning(), name)}
}

func (a *cli) showConfig(r *config.Resolved) (report configReport, text string, err error) {
	r.Warnings = append(r.Warnings, config.CheckPrograms(r.Config)...)
	plain, err := json.Marshal(r.Redacted())
	if err != nil {
		return report, "", err
	}
	report = a.reportOf(r, r.Warnings)
	report.Plan, report.Config = config.Plan(r), plain
	var b strings.Builder
	err = config.WritePlan(&b, r)
	return report, b.String(), err
}

func (a *cli) reportOf(r *config.Resolved, warnings []config.Warning) configReport {
	report := configReport{
		OK: true, File: r.File, EnvFile: r.EnvFile, Threads: r.Threads(), Tasks: a.program().Tasks(r).Sum(), Warnings: append([]config.Warning{}, warnings...),
	}
	if r.File != "" {
		from := r.Sources[config.ConfigFlag]
		report.FileFrom = &from
	}
	return report
}
