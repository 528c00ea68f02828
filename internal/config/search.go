package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// NoFile as --config or RESQUED_CONFIG means that no file is read.
const NoFile = "none"

const fileName = "resqued.yaml"

// Places are where an unnamed configuration and a service's files are looked for, if not empty.
type Places struct {
	// Here is the first candidate.
	Here string
	// Etc is the directory of the services' files: NAME.yaml and NAME.env.
	Etc string
	// Credstore is systemd's directory of credentials.
	Credstore string
}

// SystemPlaces are the places in docs/configuration.md.
func SystemPlaces() Places {
	return Places{Here: "./" + fileName, Etc: "/etc/resqued", Credstore: "/etc/credstore"}
}

// candidates are the files to look for, in order.
func (p Places) candidates() (paths []string) {
	if p.Here != "" {
		paths = append(paths, p.Here)
	}
	if p.Etc != "" {
		paths = append(paths, filepath.Join(p.Etc, fileName))
	}
	return paths
}

// instance returns the file NAME.yaml in Etc, or "".
func (p Places) instance(name string) string {
	if p.Etc == "" || name == "" || strings.ContainsAny(name, "/.") {
		return ""
	}
	path := filepath.Join(p.Etc, name+".yaml")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// instances are the services' files in Etc.
func (p Places) instances() []string {
	if p.Etc == "" {
		return nil
	}
	found, _ := filepath.Glob(filepath.Join(p.Etc, "*.yaml")) // the pattern is well-formed
	return found
}

// service returns the name of the service whose configuration a file is, or "".
func (p Places) service(path string) string {
	whole, err := filepath.Abs(path)
	if err != nil || p.Etc == "" || filepath.Dir(whole) != filepath.Clean(p.Etc) {
		return ""
	}
	name, ok := strings.CutSuffix(filepath.Base(whole), ".yaml")
	if !ok {
		return ""
	}
	return name
}

// Again returns options that reread the same file. If none was read, none is looked for: a file
// that appears later is not meant for a running daemon.
func (r *Resolved) Again(o Options) Options {
	o.File, o.FileSource = r.File, r.Sources[ConfigFlag]
	if o.File == "" {
		o.File = NoFile
	}
	return o
}

// readFile reads the named file, else the found one.
func (l *loader) readFile() {
	path, from, ok := l.named()
	switch {
	case !ok:
		return
	case path == NoFile:
		l.result.Sources[ConfigFlag] = from
		return
	case path == "":
		if path, from = l.found(); path == "" {
			return
		}
	}
	l.result.File, l.result.Sources[ConfigFlag] = path, from
	if l.file = l.opened; l.file == nil {
		l.file = loadFile(path, from, nil)
	}
	for i, e := range l.file.errs {
		l.bad[e.Key] = true
		if e.Key == ConfigFlag {
			l.file.errs[i].Message += l.unreadFile(path, from)
		}
	}
	l.errs = append(l.errs, l.file.errs...)
	l.readService()
}

// named returns the file that options, flag or environment name, or "". ok: it is not refused.
func (l *loader) named() (path string, from Source, ok bool) {
	if l.options.File != "" {
		if from = l.options.FileSource; from.Kind == "" {
			from = Source{Kind: FromFlag, Name: "--" + ConfigFlag}
		}
		return l.options.File, from, from.Kind != FromSearch || l.admit(l.options.File, from)
	}
	if l.options.Flags != nil {
		if flag := l.options.Flags.Lookup(ConfigFlag); flag != nil && flag.Changed {
			from = Source{Kind: FromFlag, Name: "--" + ConfigFlag}
			if path = flag.Value.String(); path == "" {
				l.result.Sources[ConfigFlag] = from
				l.refuse(ConfigFlag, "", "names no file; leave it out, or write --config none to read none")
				l.file.unreadable = true
				return "", from, false
			}
			return path, from, true
		}
	}
	if path = l.env[ConfigVariable]; path != "" {
		return path, Source{Kind: FromEnv, Name: ConfigVariable}, true
	}
	return "", Source{}, true
}

// found returns the first file that the search finds.
func (l *loader) found() (string, Source) {
	from := Source{Kind: FromSearch}
	for _, path := range l.options.Search.candidates() {
		_, err := os.Lstat(path)
		// A file in a directory that may not be entered counts as absent, except in /etc.
		absent := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err != nil && path == l.options.Search.Here
		switch {
		case absent:
		case l.admit(path, from):
			return path, from
		case len(l.errs) > 0:
			return "", from
		}
		if !slices.Contains(l.result.Untrusted, path) {
			l.result.Searched = append(l.result.Searched, path)
		}
	}
	l.result.Instances = l.options.Search.instances()
	return "", Source{}
}

// admit reads a found file if it can be trusted, as its writer decides which programs run and
// where passwords go. A daemon refuses another user's file; other commands ignore it.
func (l *loader) admit(path string, from Source) bool {
	why, err := l.suspicious(path)
	if why == "" && err == nil {
		// Checked again once it is open: it may have been replaced.
		l.opened = loadFile(path, from, func(info os.FileInfo) error {
			if why = l.distrust(info); why != "" {
				return errors.New(why)
			}
			return nil
		})
	}
	if why == "" {
		return true
	}
	l.opened = nil
	if l.options.RunsPrograms {
		l.result.Sources[ConfigFlag] = from
		l.refuse(ConfigFlag, path, fmt.Sprintf("%s, so it is not taken without being asked for; to use it: --config %s, to read no file: --config %s", why, path, NoFile))
		l.file.unreadable = true
		return false
	}
	l.result.Untrusted = append(l.result.Untrusted, path)
	l.warn(ConfigFlag, "not_trusted", fmt.Sprintf("%s is left out: %s. To use it: --config %s", path, why, path))
	return false
}

// suspicious returns why a found file must not be used, or "". Its error shows on opening.
func (l *loader) suspicious(path string) (why string, err error) {
	link, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() { // a pipe could block
		return "it is not a regular file", nil
	}
	if link.Mode()&fs.ModeSymlink != 0 && !l.trustedOwner(link) {
		return fmt.Sprintf("it is a link that belongs to %s", ownerOf(link)), nil
	}
	return l.distrust(info), nil
}

// distrust returns why another user may have written a file, or "".
func (l *loader) distrust(info os.FileInfo) string {
	switch {
	case !l.trustedOwner(info):
		return fmt.Sprintf("it belongs to %s, neither to you nor to root", ownerOf(info))
	case info.Mode().Perm()&0o002 != 0:
		return "every user of this machine may write to it (chmod o-w)"
	}
	return ""
}

// trustedOwner reports whether a file belongs to root, to this user, or to the user behind sudo.
func (l *loader) trustedOwner(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return true
	}
	uid := int64(stat.Uid)
	if uid == 0 || uid == int64(os.Geteuid()) {
		return true
	}
	sudo, err := strconv.ParseInt(l.env["SUDO_UID"], 10, 64)
	return err == nil && os.Geteuid() == 0 && uid == sudo
}

func ownerOf(info os.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "another user"
	}
	id := strconv.FormatUint(uint64(stat.Uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "user " + id
}

// unreadFile says what to do about a file that cannot be read.
func (l *loader) unreadFile(path string, from Source) string {
	instance := l.options.Search.instance(path)
	switch {
	case instance != "" && len(l.file.errs) > 0 && !exists(path):
		return fmt.Sprintf("; there is --config %s", instance)
	case from.Kind == FromSearch:
		return fmt.Sprintf("; to read no file: --config %s", NoFile)
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// refusal is why a file cannot be opened, with its owner if permission is missing.
func refusal(path string, err error) string {
	text := withoutPath(err).Error()
	if !errors.Is(err, fs.ErrPermission) {
		return text
	}
	if info, err := os.Stat(path); err == nil {
		text += fmt.Sprintf(": it belongs to %s (mode %04o)", ownerOf(info), info.Mode().Perm())
	}
	return text + "; run this as root (sudo)"
}

// service is what systemd gives a service that this process may read.
type service struct {
	// env is its environment file, values the variables in it.
	env    string
	values environ
	lines  map[string]int
	// credential is the file of the Redis password, if there may be one.
	credential string
}

// readService reads what systemd gives the configuration's service, so that a shell sees the same
// settings. A process that systemd has started has them already, perhaps changed on purpose.
func (l *loader) readService() {
	name := l.options.Search.service(l.result.File)
	if name == "" || l.file.unreadable || l.env["NOTIFY_SOCKET"] != "" {
		return
	}
	credential := "resqued." + passwordCredential
	if name != strings.TrimSuffix(fileName, ".yaml") {
		credential = "resqued." + name + "." + passwordCredential
	}
	l.service.credential = filepath.Join(l.options.Search.Credstore, credential)
	path := strings.TrimSuffix(l.result.File, ".yaml") + ".env"
	data, err := readLimited(path, nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case errors.Is(err, fs.ErrPermission):
		l.result.Unread = append(l.result.Unread, path)
		return
	case err != nil:
		l.warn(ConfigFlag, "environment_file", fmt.Sprintf("%s, the environment of the service, cannot be read: %s", path, withoutPath(err)))
		return
	}
	values, err := parseEnvFile(data)
	if err != nil {
		l.warn(ConfigFlag, "environment_file", fmt.Sprintf("%s: %s; systemd leaves out the whole file", path, err))
		return
	}
	l.result.EnvFile, l.service.env = path, path
	l.service.values, l.service.lines = environ{}, map[string]int{}
	for _, v := range values {
		if !v.valid() {
			l.warn(ConfigFlag, "environment_file", fmt.Sprintf("%s:%d: %s is not a name of a variable: systemd leaves the line out.", path, v.line, shown(v.name)))
			continue
		}
		if delete(l.service.values, v.name); v.value != "" { // the last one counts; an empty one counts as not set
			l.service.values[v.name], l.service.lines[v.name] = v.value, v.line
		}
	}
}

// warnOfUnread warns if Redis's address may be in a file that this user cannot read.
func (l *loader) warnOfUnread() {
	for _, path := range l.result.Unread {
		if strings.HasSuffix(path, ".env") && l.result.Sources["redis_url"].Kind == FromDefault {
			l.warn("redis_url", "unread", fmt.Sprintf("redis_url is the default, but the service also reads %s, which you may not read. Run this as root (sudo).", path))
		}
	}
}

// findCredential returns the service's readable password file, or "".
func (l *loader) findCredential() string {
	path := l.service.credential
	// An address given for this call is another server's.
	if path == "" || slices.Contains([]string{FromFlag, FromEnv}, l.result.Sources["redis_url"].Kind) {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			l.result.Unread = append(l.result.Unread, path)
		}
		return ""
	}
	_ = f.Close() // only looked at
	return path
}
