//go:build tools

// Package helm pins Helm, and what checks its output against the schemas of Kubernetes.
package helm

import (
	_ "github.com/yannh/kubeconform/cmd/kubeconform"
	_ "helm.sh/helm/v4/cmd/helm"
)
