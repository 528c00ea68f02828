package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

func (a *cli) doctorCommand() *cobra.Command {
	return a.command(verb{
		use: "doctor", kind: reads, short: "find problems and suggest fixes",
		long: `Check the configuration, Redis, daemons, queues, locks, parked jobs, schedules,
and the resqued units that systemd has loaded on this machine. Each finding
suggests a fix. Nothing is changed. STATUS is

  ok    as it should be
  warn  it works, but may not be intended
  FAIL  jobs wait for it, or a promise of docs/reliability.md does not hold

The code at the end of a finding names its runbook: "explain CODE".

Exit codes: 0 nothing failed, 3 something failed, 69 Redis does not answer, 1
Redis refuses the password.`,
		example: "doctor\ndoctor -o json | jq '.checks[] | select(.status == \"fail\")'",
		do:      a.doctor,
	})
}

func (a *cli) doctor(c *cobra.Command, _ []string) error {
	found, r, err := a.checkConfig(c)
	if err == nil {
		var more []view.Finding
		more, err = a.checkFleet(c.Context(), r)
		found = append(found, more...)
	}
	found = append(found, checkUnits(c.Context())...)
	if said := a.printFindings(found); said != nil {
		return said
	}
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.Status == view.FindingFail {
			return exitCode(exitUnhealthy)
		}
	}
	return nil
}

// checkConfig reads the configuration. It fails if nothing else can then be checked.
func (a *cli) checkConfig(c *cobra.Command) ([]view.Finding, *config.Resolved, error) {
	r, err := a.loadOne(c, config.Options{}, "this command needs")
	if err != nil {
		return nil, nil, err
	}
	var found []view.Finding
	for _, w := range append(r.Warnings, a.program().Warnings(r)...) {
		if w.Key == "handlers" && r.File == "" {
			continue // the daemons' file is not read here
		}
		found = append(found, view.Finding{Check: "config", Status: view.FindingWarn, Text: w.Message, Code: view.CodeConfigWarning})
	}
	if err := configProblem(a.program().CheckDatabase(r.Config)); err != nil {
		found = append(found, view.Finding{Check: "config", Status: view.FindingFail, Text: err.Error(), Code: view.CodeConfigDatabase})
	}
	if len(found) == 0 {
		text := "no file; the defaults and the environment"
		if r.File != "" {
			text = r.File
		}
		found = append(found, view.Finding{Check: "config", Status: view.FindingOK, Text: text})
	}
	return found, r, nil
}

func (a *cli) checkFleet(ctx context.Context, r *config.Resolved) ([]view.Finding, error) {
	s, err := app.OpenStore(r.Config, "resqued-cli")
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	return view.Findings(ctx, s, nil, a.checks(r))
}

// checks are what "doctor" and the dashboard know besides Redis.
func (a *cli) checks(r *config.Resolved) view.Checks {
	return view.Checks{Unique: r.Unique, Schedules: scheduleSources(a.program(), r), Differ: app.SettingsDiffer, Throwaway: a.dev}
}

const unitPatience = 5 * time.Second

// checkUnits checks resqued's units that systemd, if there is one, has loaded here.
func checkUnits(ctx context.Context) []view.Finding {
	ctx, cancel := context.WithTimeout(ctx, unitPatience)
	defer cancel()
	text, err := exec.CommandContext(ctx, "systemctl", "show", "resqued.service", "resqued@*.service",
		"--property=Id,LoadState,ActiveState,KillMode,KillSignal,Restart,WatchdogUSec").Output()
	if err != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil // no systemd
	}
	return unitFindings(string(text))
}

// unitFindings reads the output of systemctl show: a block of NAME=VALUE for each unit.
func unitFindings(text string) (found []view.Finding) {
	for block := range strings.SplitSeq(text, "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(block) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				fields[name] = value
			}
		}
		if fields["LoadState"] != "loaded" {
			continue
		}
		unit := fields["Id"]
		add := func(code, status, text, setting string) {
			found = append(found, view.Finding{
				Check: "systemd", Status: status, Text: unit + ": " + text, Code: code,
				Fix: fmt.Sprintf("systemctl edit %s: [Service] %s", unit, setting),
			})
		}
		before := len(found)
		switch fields["KillMode"] {
		case "mixed", "":
		case "control-group":
			add(view.CodeUnitKillMode, view.FindingFail, "KillMode=control-group: a stop kills the commands of running jobs", "KillMode=mixed")
		default:
			add(view.CodeUnitKillMode, view.FindingFail, "KillMode="+fields["KillMode"]+": a stop leaves worker processes behind", "KillMode=mixed")
		}
		if signal := fields["KillSignal"]; signal != "" && signal != "3" && signal != "SIGQUIT" {
			add(view.CodeUnitKillSignal, view.FindingFail, "KillSignal="+signal+": a stop kills running jobs instead of waiting for them", "KillSignal=SIGQUIT")
		}
		if fields["Restart"] != "" && fields["Restart"] != "always" {
			add(view.CodeUnitRestart, view.FindingWarn, "Restart="+fields["Restart"]+": a daemon that ends is not always started again", "Restart=always")
		}
		if fields["ActiveState"] == "failed" {
			found = append(found, view.Finding{
				Check: "systemd", Status: view.FindingFail, Code: view.CodeUnitFailed, Text: unit + " has failed, and is not started again",
				Fix: "journalctl -u " + unit + ", fix it, then systemctl restart " + unit,
			})
		}
		if len(found) == before {
			found = append(found, view.Finding{Check: "systemd", Status: view.FindingOK, Text: unit + " is " + fields["ActiveState"]})
		}
	}
	return found
}

var findingColours = colours{view.FindingOK: green, view.FindingWarn: yellow, view.FindingFail: red}

func (a *cli) printFindings(found []view.Finding) error {
	for i, f := range found {
		if f.Command {
			found[i].Fix = a.again() + " " + f.Fix
		}
	}
	if a.flags.output == outJSON {
		if found == nil {
			found = []view.Finding{}
		}
		return a.printJSON(struct {
			Checks []view.Finding `json:"checks"`
		}{found})
	}
	var b strings.Builder
	for _, f := range found {
		word := f.Status
		if word == view.FindingFail {
			word = "FAIL"
		}
		code := ""
		if f.Status != view.FindingOK && f.Code != "" {
			code = "  [" + f.Code + "]"
		}
		fmt.Fprintf(&b, "%s  %-9s  %s%s\n", a.paint(findingColours[f.Status], fmt.Sprintf("%-4s", word)), f.Check, wire.Printable(f.Text, 0), code)
		if f.Fix != "" && f.Status != view.FindingOK {
			fmt.Fprintf(&b, "%17s→ %s\n", "", wire.Printable(f.Fix, 0))
		}
	}
	return a.printText(b.String())
}
