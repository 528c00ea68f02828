// The manual command writes resqued's manual pages: resqued.1 from its commands, resqued.yaml.5
// from its configuration keys. It is not part of the daemon.
//
//	go run ./internal/cli/manual -version 1.2.3 -date 2026-11-25 FOLDER
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/resqued/resqued/internal/cli"
	"github.com/resqued/resqued/internal/config"
)

const documentation = "https://github.com/resqued/resqued/tree/main/docs"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("manual", flag.ContinueOnError)
	version := flags.String("version", "dev", "`version` that the pages are about")
	date := flags.String("date", "", "`date` of that version")
	sample := flags.String("sample", "configs/resqued.yaml", "`file` that resqued.yaml(5) ends with")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("it takes one folder, for the pages")
	}
	example, err := os.ReadFile(*sample)
	if err != nil {
		return err
	}
	folder := flags.Arg(0)
	return errors.Join(
		os.MkdirAll(folder, 0o755),
		os.WriteFile(filepath.Join(folder, "resqued.1"), []byte(commands(cli.Commands(), *version, *date)), 0o644),
		os.WriteFile(filepath.Join(folder, "resqued.yaml.5"), []byte(settings(config.Settings(), string(example), *version, *date)), 0o644),
	)
}

// commands is resqued(1), with all commands on one page to be searchable.
func commands(root *cobra.Command, version, date string) string {
	p := &page{}
	p.title(root.Name(), "1", date, version, "User Commands")
	p.section("NAME")
	p.printf("%s \\- %s\n", root.Name(), escaped(root.Short))
	p.section("SYNOPSIS")
	p.text(root.Name() + " COMMAND [ARGUMENTS] [FLAGS]")
	p.section("DESCRIPTION")
	p.text(root.Long)
	p.text("The first steps:")
	p.verbatim(root.Example)
	p.section("COMMANDS")
	p.tree(root)
	p.section("FLAGS OF ALL COMMANDS")
	p.flags(root.PersistentFlags())
	p.section("SIGNALS")
	p.text("They go to the master, the process that resqued work is; it passes them on.")
	p.items([][2]string{
		{"QUIT", "take no new job, finish those in hand, leave"},
		{"TERM, INT", "kill the jobs in hand, record them as failed, leave"},
		{"USR1", "kill the jobs in hand, record them as failed, go on"},
		{"USR2, CONT", "take no new job; take jobs again"},
		{"HUP", "read the configuration again, or change to the program that has replaced the running one"},
	})
	p.section("FILES")
	p.items([][2]string{
		{"./resqued.yaml, /etc/resqued/resqued.yaml", "The configuration, see resqued.yaml(5)."},
		{"/usr/share/doc/resqued/docs", "The pages that messages name as docs/PAGE.md, of the packages."},
		{"/etc/resqued/resqued.env", "Variables of the services, one NAME=VALUE a line. They win over the file above."},
		{"/etc/credstore/resqued.redis-password", "The password of Redis. For resqued@STORE: resqued.STORE.redis-password."},
		{"/etc/credstore/resqued.web-tokens", "The tokens with which users log in to the dashboard of resqued-web.service."},
		{"/var/lib/resqued, /var/lib/resqued-STORE", "Where the commands of jobs run."},
	})
	p.section("ENVIRONMENT")
	p.text("RESQUED_ and the name of a key in capitals sets each key of resqued.yaml(5).")
	p.item("RESQUED_CONFIG", "The file to read.")
	p.item("NO_COLOR", "No colours.")
	p.section("SEE ALSO")
	p.text("resqued.yaml(5), systemctl(1), journalctl(1), " + documentation)
	return p.String()
}

func (p *page) tree(parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if !c.IsAvailableCommand() || c.Name() == "help" {
			continue
		}
		p.subsection(strings.TrimSuffix(c.UseLine(), " [flags]"))
		about := c.Long
		if about == "" {
			about = sentence(c.Short)
		}
		p.text(about)
		p.flags(c.NonInheritedFlags())
		if c.Example != "" {
			p.verbatim(c.Example)
		}
		p.tree(c)
	}
}

func (p *page) flags(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, about := pflag.UnquoteUsage(f)
		term := "--" + f.Name
		if f.Shorthand != "" {
			term = "-" + f.Shorthand + ", " + term
		}
		if value != "" {
			term += " " + value
		}
		if given := f.DefValue; given != "" && given != "false" && given != "0" && given != "[]" && given != "0s" {
			about += " (default " + given + ")"
		}
		p.item(term, sentence(about))
	})
}

// settings is resqued.yaml(5).
func settings(keys []config.Setting, sample, version, date string) string {
	p := &page{}
	p.title("resqued.yaml", "5", date, version, "File Formats")
	p.section("NAME")
	p.WriteString("resqued.yaml \\- configuration of resqued\n")
	p.section("DESCRIPTION")
	p.text(`resqued reads ./resqued.yaml, else /etc/resqued/resqued.yaml; --config or RESQUED_CONFIG names another file.
A flag wins over the environment, the environment over the file, the file over the default.

"resqued config check" says whether a configuration is right, "resqued config show" what it comes to and where
each value is from, "resqued config init" writes a first one. "resqued reload", or systemctl reload, has a daemon read it again.`)
	p.section("KEYS")
	for _, k := range keys {
		about := sentence(strings.ReplaceAll(k.Help, "`", ""))
		if k.Default != "" {
			about += "\nDefault: " + k.Default + "."
		}
		about += "\nVariable: " + strings.Join(k.Variables, ", else ") + "."
		if k.Flag != "" {
			about += "\nFlag: --" + k.Flag + "."
		}
		p.item(k.Name, about)
	}
	p.section("SECTIONS")
	p.items([][2]string{
		{"handlers", "The command or runner that performs the jobs of a class, with its queue, timeout, lock and retries."},
		{"runners", "Processes that have loaded an application in Ruby, Python or Node, and perform its classes."},
		{"schedule", "Jobs that are enqueued again and again, by cron or every so often."},
		{"stores", "Several Redis servers or namespaces, each with a daemon of its own."},
	})
	p.section("EXAMPLE")
	p.text("Every key. A line that is commented out has an example of a value.")
	p.verbatim(sample)
	p.section("SEE ALSO")
	p.text("resqued(1), " + documentation + "/configuration.md")
	return p.String()
}

func sentence(help string) string {
	if help == "" {
		return ""
	}
	if !strings.HasSuffix(help, ".") {
		help += "."
	}
	return strings.ToUpper(help[:1]) + help[1:]
}
