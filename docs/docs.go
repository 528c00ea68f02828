// Package docs holds the pages that the program prints.
package docs

import _ "embed"

// Operations is operations.md, with the runbooks of findings.
//
//go:embed operations.md
var Operations string
