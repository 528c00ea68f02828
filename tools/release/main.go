// Release has the parts of scripts/release that take more than commands. It runs in the root of the
// repository and writes to standard output:
//
//	release licenses               check the licences of all dependencies
//	release texts TARGET…          the licences of what is linked: linux/amd64 darwin/arm64
//	release sbom VERSION PROGRAM   what a program contains, as CycloneDX
//	release archive FOLDER         the files of a folder
//	release gzip                   standard input, compressed
//
// Its module has its dependencies; see docs/releasing.md.
package main

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	if err := errors.Join(run(os.Args[1:], out), out.Flush()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	const root = "."
	switch {
	case len(args) == 1 && args[0] == "licenses":
		return checkLicenses(root, out)
	case len(args) > 1 && args[0] == "texts":
		all, err := linked(root, args[1:]...)
		if err == nil {
			err = allowed(all, allowedLinked)
		}
		if err == nil {
			_, err = out.Write(licenseTexts(all))
		}
		return err
	case len(args) == 3 && args[0] == "sbom":
		return sbom(root, args[1], args[2], out)
	case len(args) == 2 && args[0] == "archive":
		date, err := sourceDate()
		if err != nil {
			return err
		}
		return writeArchive(out, args[1], date)
	case len(args) == 1 && args[0] == "gzip":
		return compress(out, os.Stdin)
	}
	return fmt.Errorf("%s: it takes licenses, texts, sbom, archive or gzip", strings.Join(args, " "))
}

// sourceDate returns the date of all generated files.
func sourceDate() (time.Time, error) {
	n, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(n, 0).UTC(), nil
}

// compress writes without name and time, so the same content is the same file. Versions of the
// program gzip may differ.
func compress(to io.Writer, from io.Reader) error {
	w, err := gzip.NewWriterLevel(to, gzip.BestCompression)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, from)
	return errors.Join(err, w.Close())
}
