package pages

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"path"
	"strings"
	"sync"
)

// AssetPath is the path of the pages' files.
const AssetPath = "/assets/"

//go:embed assets
var assetFiles embed.FS

// Asset is a file that pages need.
type Asset struct {
	Type string
	// Body is the file, Gzip its compressed form.
	Body, Gzip []byte
}

// assetSet has the files by names with a digest, so that browsers may cache them for ever.
type assetSet struct {
	hashed map[string]string // name in the source → name in the address
	files  map[string]Asset  // by the name in the address
}

var assetTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

// assets is built at first use, because worker processes run the same program.
var assets = sync.OnceValue(func() *assetSet {
	set := &assetSet{hashed: map[string]string{}, files: map[string]Asset{}}
	files, err := assetFiles.ReadDir("assets")
	if err != nil {
		panic(err) // the files are embedded
	}
	for _, file := range files {
		base := file.Name()
		ext := path.Ext(base)
		if assetTypes[ext] == "" {
			continue // a licence
		}
		body, err := assetFiles.ReadFile("assets/" + base)
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(body)
		name := strings.TrimSuffix(base, ext) + "-" + hex.EncodeToString(sum[:6]) + ext
		var packed bytes.Buffer
		z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level exists
		_, _ = z.Write(body)                                       // a buffer accepts all
		_ = z.Close()
		set.hashed[base] = name
		set.files[name] = Asset{Type: assetTypes[ext], Body: body, Gzip: packed.Bytes()}
	}
	return set
})

// FindAsset returns a file by its name below AssetPath.
func FindAsset(name string) (Asset, bool) {
	a, ok := assets().files[name]
	return a, ok
}
