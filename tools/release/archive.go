package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name, from string
	mode       int64
}

// archive makes a tar of a program and its files.
func (b *build) archive(t target, program, name string) error {
	entries := []entry{
		{"resqued", program, 0o755},
		{"LICENSE", b.path("LICENSE"), 0o644},
		{"README.md", b.path("README.md"), 0o644},
		{"CHANGELOG.md", b.path("CHANGELOG.md"), 0o644},
		{"THIRD_PARTY_LICENSES", filepath.Join(b.work, "THIRD_PARTY_LICENSES"), 0o644},
		{"resqued.yaml", b.path("configs/resqued.yaml"), 0o644},
		{"man/resqued.1", filepath.Join(b.work, "man/resqued.1"), 0o644},
		{"man/resqued.yaml.5", filepath.Join(b.work, "man/resqued.yaml.5"), 0o644},
	}
	folders := []string{"completions"}
	if t.os == "linux" {
		folders = append(folders, "systemd")
	}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(b.work, folder, "*"))
		if err != nil {
			return err
		}
		for _, file := range files {
			entries = append(entries, entry{folder + "/" + filepath.Base(file), file, 0o644})
		}
	}
	file := filepath.Join(b.out, name+".tar.gz")
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := errors.Join(writeArchive(out, name, entries, b.date), out.Close()); err != nil {
		return err
	}
	return b.made(file)
}

// writeArchive writes a compressed tar that depends only on its arguments: files in order,
// owned by root, all with one time, and no name or time in gzip's header.
func writeArchive(to io.Writer, folder string, entries []entry, date time.Time) error {
	compressed, err := gzip.NewWriterLevel(to, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	for _, e := range entries {
		content, err := os.ReadFile(e.from)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: path.Join(folder, e.name), Mode: e.mode, Size: int64(len(content)), ModTime: date, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}
