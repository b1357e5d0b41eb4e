//go:build tools

// Package autoscalers pins Karpenter, and the API of cluster-autoscaler.
package autoscalers

import (
	_ "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	_ "sigs.k8s.io/karpenter/kwok"
)
