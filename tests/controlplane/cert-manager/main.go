// Package main runs cert-manager: its controllers for a self-signed CA, and its CA injector.
//
// The module of cert-manager has packages only; its programs are in modules that are not published.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	kinds "github.com/cert-manager/cert-manager/pkg/client/clientset/versioned/scheme"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/util"
)

// KUBECONFIG names the cluster.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(klog.Background())
	startControllers(ctx)
	runInjector(ctx)
}

func startControllers(ctx context.Context) {
	options := controller.ContextOptions{
		Kubeconfig: os.Getenv("KUBECONFIG"),
		// As in its program: a request that fails is not repeated within a test.
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	}
	factory, err := controller.NewContextFactory(ctx, options)
	check(err)
	for _, build := range controller.Known() {
		made, err := build(factory)
		check(err)
		go func() { check(made.Run(2, ctx)) }()
	}
	shared, err := factory.Build()
	check(err)
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
}

func runInjector(ctx context.Context) {
	scheme := runtime.NewScheme()
	check(core.AddToScheme(scheme))
	check(kinds.AddToScheme(scheme))
	options := ctrl.Options{Scheme: scheme, Metrics: metrics.Options{BindAddress: "0"}}
	config := util.RestConfigWithUserAgent(ctrl.GetConfigOrDie(), "cainjector")
	manager, err := ctrl.NewManager(config, options)
	check(err)
	check(cainjector.RegisterAllInjectors(ctx, manager, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName:   true,
			cainjector.ValidatingWebhookConfigurationName: true,
		},
	}))
	check(manager.Start(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
