package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// databaseVariable is shared with other programs, for databases of any kind.
const databaseVariable = "DATABASE_URL"

// databaseSchemes are the schemes that ActiveRecord takes for PostgreSQL.
var databaseSchemes = []string{"postgres", "postgresql", "postgis"}

// readDatabase reads the database URL, and refuses one that cannot be PostgreSQL's.
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
		// It may be another program's, for MySQL for example.
		c.DatabaseURL, l.result.Sources["database_url"] = "", Source{Kind: FromDefault}
	default:
		l.refuse("database_url", c.DatabaseURL, err.Error())
	}
}

// checkDatabaseURL refuses URLs that are not PostgreSQL's. Its error never repeats the URL.
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

func redactDatabase(text string) string {
	if text == "" || checkDatabaseURL(text) == nil {
		return RedactURL(text)
	}
	return hidden
}
