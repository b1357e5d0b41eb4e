//go:build tools

// Package score pins kube-score, whose dependencies are older than Helm's.
package score

import _ "github.com/zegl/kube-score/cmd/kube-score"
