package retry

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/resqued/resqued"
)

// Failure describes a job's failure.
type Failure struct {
	Err error
	// Exception and Message are the fields of a failure record.
	Exception, Message string
}

// matcher is a resqued.Errors with compiled patterns.
type matcher struct {
	resqued.Errors
	messages []*regexp.Regexp
}

func newMatcher(e resqued.Errors) (*matcher, error) {
	m := &matcher{Errors: e}
	for _, pattern := range e.Messages {
		compiled, err := regexp.Compile(pattern)
		if err != nil {
			return nil, fmt.Errorf("message %q: %w", pattern, err)
		}
		m.messages = append(m.messages, compiled)
	}
	return m, nil
}

// matches reports whether the failure matches. If a function of the program panics, it does not.
func (m *matcher) matches(f Failure) (is bool) {
	if slices.ContainsFunc(m.Exceptions, func(pattern string) bool { return glob(pattern, f.Exception) }) ||
		slices.ContainsFunc(m.messages, func(re *regexp.Regexp) bool { return re.MatchString(f.Message) }) {
		return true
	}
	if f.Err == nil {
		return false
	}
	defer func() {
		if recover() != nil {
			is = false
		}
	}()
	var exit interface{ ExitStatus() int }
	if len(m.ExitCodes) > 0 && errors.As(f.Err, &exit) && slices.Contains(m.ExitCodes, exit.ExitStatus()) {
		return true
	}
	return slices.ContainsFunc(m.Is, func(target error) bool { return errors.Is(f.Err, target) }) || m.Func != nil && m.Func(f.Err)
}

func glob(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return pattern == name
	}
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(name, part)
		if at < 0 {
			return false
		}
		name = name[at+len(part):]
	}
	return true
}
