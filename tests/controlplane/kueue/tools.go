//go:build tools

// Package kueue pins Kueue for tests. Where the control plane has another version of a module, go.mod
// replaces it by that one, so that most of its packages are compiled already.
package kueue

import _ "sigs.k8s.io/kueue/cmd/kueue"
