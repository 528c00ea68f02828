package fromfile_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/client/fromfile"
)

func ExampleStores() {
	dir, err := os.MkdirTemp("", "resqued")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "resqued.yaml")
	text := `
stores:
  main: {redis_url: "redis://a:6379/0", queues: [critical, mail]}
  bulk: {redis_url: "redis://b:6379/0", queues: ["bulk_*"]}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		panic(err)
	}
	stores, err := fromfile.Stores(file, client.Options{})
	if err != nil {
		panic(err)
	}
	defer func() { _ = stores.Close() }()
	name, err := stores.StoreOf("bulk_import")
	fmt.Println(name, err)
	// Output: bulk <nil>
}
