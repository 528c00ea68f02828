package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// databaseVariable is a variable that other programs also use, for databases of any kind.
const databaseVariable = "DATABASE_URL"

// databaseSchemes are those that ActiveRecord takes for PostgreSQL.
var databaseSchemes = []string{"postgres", "postgresql", "postgis"}

func databaseURL() kind {
	return kind{
		hint: "URL",
		parse: func(c *Config, text string) error {
			c.DatabaseURL = text // looked at by readDatabase, which knows where it is from
			return nil
		},
		show: func(c *Config) string { return redactDatabase(c.DatabaseURL) },
	}
}

// readDatabase reads the URL of the database, and refuses one that cannot be of PostgreSQL.
// Errors that only PostgreSQL can find show when a connection is made.
func (l *loader) readDatabase() {
	if !l.ok("database_url", "database_url_file") {
		return
	}
	c, source := &l.result.Config, l.result.Sources["database_url"]
	if path := c.DatabaseURLFile; path != "" {
		url, err := readSecret(path, "URL of the database")
		if err == nil {
			err = checkDatabaseURL(url)
		}
		if err != nil {
			l.refuse("database_url_file", path, err.Error())
			return
		}
		l.warnOfReadable("database_url_file", path)
		if c.DatabaseURL != "" && source.Name != databaseVariable {
			l.warn("database_url", "overruled", fmt.Sprintf("database_url (%s) has no effect: database_url_file (%s) is set too and wins.",
				source, l.result.Sources["database_url_file"]))
		}
		c.DatabaseURL, l.result.Sources["database_url"] = url, l.result.Sources["database_url_file"]
		return
	}
	err := checkDatabaseURL(c.DatabaseURL)
	switch {
	case err == nil:
	case source.Kind == FromEnv && source.Name == databaseVariable:
		// Another program's, which may well keep its data in MySQL.
		c.DatabaseURL, l.result.Sources["database_url"] = "", Source{Kind: FromDefault}
	default:
		l.refuse("database_url", c.DatabaseURL, err.Error())
	}
}

// checkDatabaseURL refuses what names no database of PostgreSQL. The message never
// repeats the URL.
func checkDatabaseURL(text string) error {
	scheme, _, found := strings.Cut(text, "://")
	switch {
	case text == "":
		return nil
	case variableForm().MatchString(text):
		return errNotExpanded
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("must not hold control characters; percent-encode them in a password")
	case !found:
		return errors.New("not a URL; write postgres://user@host:5432/database")
	case !slices.Contains(databaseSchemes, scheme):
		return fmt.Errorf("is not of PostgreSQL; write %s://user@host:5432/database", databaseSchemes[0])
	}
	_, _, rest := splitURL(text)
	return checkHosts(rest, true)
}

// redactDatabase returns the URL without passwords.
func redactDatabase(text string) string {
	if text == "" || checkDatabaseURL(text) == nil {
		return redactURL(text)
	}
	return hidden
}
