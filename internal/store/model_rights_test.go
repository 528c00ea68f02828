package store_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
)

var commandInScript = regexp.MustCompile(`p?call_?\('([A-Z]+)'`)

// scriptCommands are all commands of the scripts.
var scriptCommands = func() []string {
	files, _ := filepath.Glob("lua/*.lua")
	var all []string
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, match := range commandInScript.FindAllStringSubmatch(string(text), -1) {
			all = append(all, strings.ToLower(match[1]))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}()

// rights changes those of the user of the scripts.
func (r *rig) rights(t require.TestingT, rules ...string) {
	args := []any{"ACL", "SETUSER", "model", "on", ">pw", "~*", "&*"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	require.NoError(t, r.redis.Do(r.ctx, args...).Err())
}

// refused sends a request while the user lacks the right to one command. It returns ok
// if the script did something all the same.
func (m *model) refused(t *rapid.T, req store.ExchangeRequest) (reply store.ExchangeReply, ok bool) {
	err := m.without(t, func() (err error) {
		reply, err = m.store.Exchange(m.ctx, req)
		return err
	})
	return reply, err == nil
}

// without calls a script while the user lacks the right to one command.
func (m *model) without(t *rapid.T, call func() error) error {
	command := rapid.SampledFrom(scriptCommands).Draw(t, "right missing")
	m.rights(t, "-acl", "-"+command)
	err := call()
	m.rights(t, "+@all")
	if err == nil {
		return nil
	}
	if text := err.Error(); !strings.Contains(text, strings.ToUpper(command)) && !strings.Contains(text, "can't run this command") {
		t.Fatalf("without %s: %v", command, err)
	}
	m.see("right missing")
	return err
}

func TestScriptCommandsAreFound(t *testing.T) {
	t.Parallel()
	require.Greater(t, len(scriptCommands), 40)
	require.Subset(t, scriptCommands, []string{"lpop", "rpush", "hset", "linsert"})
}
