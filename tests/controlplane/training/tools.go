//go:build tools

// Package training pins training-operator, whose dependencies are older than the control plane's.
package training

import _ "github.com/kubeflow/training-operator/cmd/training-operator.v1"
