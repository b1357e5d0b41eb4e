//go:build tools

// Package kubelet pins the kubelet for tests, with the dependencies of the control plane.
package kubelet

import _ "k8s.io/kubernetes/cmd/kubelet"
