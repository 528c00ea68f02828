// Package docs holds the pages that the program prints.
package docs

import _ "embed"

//go:embed operations.md
var operations string

// Operations returns operations.md, with the runbooks of findings.
func Operations() string { return operations }
