package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

const module = "github.com/resqued/resqued"

// sbom writes the contents of a program as CycloneDX: the modules that the program itself
// names, with their checksums and licences, the standard library, and embedded packages.
func sbom(root, version, program string, out io.Writer) error {
	date, err := sourceDate()
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	settings := map[string]string{}
	var properties []cdx.Property
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
		if strings.HasPrefix(s.Key, "vcs") || strings.HasPrefix(s.Key, "GO") || s.Key == "CGO_ENABLED" {
			properties = append(properties, cdx.Property{Name: "go:" + s.Key, Value: s.Value})
		}
	}
	deps, err := linked(root, settings["GOOS"]+"/"+settings["GOARCH"])
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	bom := cdx.NewBOM()
	bom.SerialNumber = serial(sum)
	main := cdx.Component{
		BOMRef: "pkg:golang/" + module + "@v" + version, Type: cdx.ComponentTypeApplication, Name: "resqued", Version: version,
		PackageURL: "pkg:golang/" + module + "@v" + version + "?goos=" + settings["GOOS"] + "&goarch=" + settings["GOARCH"],
		Licenses:   licenses([]string{"MIT"}),
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}
	bom.Metadata = &cdx.Metadata{Timestamp: date.Format(time.RFC3339), Component: &main, Properties: &properties}

	var components []cdx.Component
	var refs []string
	add := func(d dependency, hash string) {
		purl := "pkg:" + d.kind + "/" + d.path + "@" + d.version
		if d.kind == standard {
			purl = "pkg:golang/std@" + strings.TrimPrefix(d.version, "go")
		}
		c := cdx.Component{
			BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: d.path, Version: d.version,
			PackageURL: purl, Licenses: licenses(d.licenses), Scope: cdx.ScopeRequired,
		}
		if hash != "" {
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hash}}
		}
		components, refs = append(components, c), append(refs, purl)
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			return fmt.Errorf("%s is replaced by %s", m.Path, m.Replace.Path)
		}
		i := slices.IndexFunc(deps, func(d dependency) bool { return d.kind == goModule && d.path == m.Path && d.version == m.Version })
		if i < 0 {
			return fmt.Errorf("%s %s is linked, and not among those whose licences were looked for", m.Path, m.Version)
		}
		hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
		if err != nil {
			return fmt.Errorf("%s: sum %q: %w", m.Path, m.Sum, err)
		}
		add(deps[i], hex.EncodeToString(hash))
	}
	for _, d := range deps {
		if d.kind != goModule {
			add(d, "")
		}
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// serial returns a UUID of the list, which must be unique: it is derived from the program.
func serial(sum [sha256.Size]byte) string {
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x80 // version 8: custom
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

func licenses(ids []string) *cdx.Licenses {
	all := cdx.Licenses{}
	for _, id := range ids {
		all = append(all, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	return &all
}
