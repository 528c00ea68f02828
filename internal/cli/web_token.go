package cli

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/web"
)

const tokenBytes = 32

func (a *cli) webTokenCommand() *cobra.Command {
	var path, role string
	add := a.command(verb{
		use: "add NAME", kind: noRedis, short: "make a token and show it", args: exactly(1, "one name"),
		example: "web token add grafana --role viewer",
		flags: func(f *flagSet) {
			f.StringVar(&role, "role", web.Viewer.String(), "viewer or operator")
			f.completers["role"] = words(web.Viewer.String(), web.Operator.String())
		},
		do: func(_ *cobra.Command, args []string) error { return a.addToken(path, args[0], role) },
	})
	list := func(*cobra.Command, []string) error { return a.listTokens(path) }
	ls := a.command(verb{use: "list", kind: noRedis, short: "list the tokens (default)", do: list})
	remove := a.command(verb{
		use: "remove NAME", kind: noRedis, short: "remove a token: its user is logged out", args: exactly(1, "one name"),
		do: func(_ *cobra.Command, args []string) error { return a.removeToken(path, args[0]) },
	})
	ls.Aliases, remove.Aliases = []string{"ls"}, []string{"rm"}
	c := a.command(verb{
		use: "token", kind: noRedis, short: "add, list and remove the tokens with which people log in",
		long: `Add, list and remove the tokens with which people and programs log in to "web":
as the password in a browser, with any user name, or as "Authorization: Bearer
TOKEN". A token is shown once; the file holds its name, role and SHA-256. A
running server reads a changed file again.`,
		do: list,
	}, add, ls, remove)
	addTokensFlag(c.PersistentFlags(), &path)
	return c
}

func (out *output) listTokens(path string) error {
	list, err := (&web.Tokens{Path: path}).List()
	if err != nil {
		return err
	}
	l := newListing("NAME, ROLE")
	for _, one := range list {
		l.add(one.Name, map[string]string{"name": one.Name, "role": one.Role.String()}, one.Name, one.Role.String())
	}
	return out.printOr(l, "no tokens in %s", path)
}

func (out *output) addToken(path, name, role string) error {
	r, err := web.ParseRole(role)
	if err != nil {
		return usage("", "--%s", err)
	}
	if name == "" || strings.HasPrefix(name, "#") || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }) || len(name) > 100 {
		return usage("", "%q is not a name for a token: use letters, digits and signs without spaces", name)
	}
	tokens := &web.Tokens{Path: path}
	list, err := tokens.List()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(t web.Token) bool { return t.Name == name }) {
		return failure("exists", "Remove it first: "+out.name+" web token remove "+name, "there is a token %q", name)
	}
	secret := make([]byte, tokenBytes)
	_, _ = rand.Read(secret) // never fails
	token := base64.RawURLEncoding.EncodeToString(secret)
	if err := writeTokens(path, append(slices.Clone(list), web.Token{Name: name, Role: r, Sum: sha256.Sum256([]byte(token))})); err != nil {
		return err
	}
	if out.flags.output == outJSON {
		return out.printJSON(map[string]string{"name": name, "role": role, "token": token})
	}
	out.note("%s, a %s, logs in with this token, which is not shown again:", name, role)
	return out.printText(token + "\n")
}

func (out *output) removeToken(path, name string) error {
	list, err := (&web.Tokens{Path: path}).List()
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(list), func(t web.Token) bool { return t.Name == name })
	if len(left) == len(list) {
		known := make([]string, 0, len(list))
		for _, t := range list {
			known = append(known, t.Name)
		}
		return notFound("token", name, known, out.name+" web token")
	}
	if err := writeTokens(path, left); err != nil {
		return err
	}
	return out.printText("removed " + name + "\n")
}

// writeTokens replaces the file and keeps its mode.
func writeTokens(path string, list []web.Token) error {
	mode := os.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := replaceFile(path, web.FormatTokens(list), mode); err != nil {
		return fmt.Errorf("write the tokens: %w", err)
	}
	return nil
}
