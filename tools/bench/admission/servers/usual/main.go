// Command usual is a webhook as people write them: controller-runtime's admission server, the Pod
// decoded, changed and encoded again, and the patch made by comparing the two.
//
//	usual PORT FOLDER
//
// FOLDER holds tls.crt and tls.key.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

type mutator struct {
	decoder admission.Decoder
}

// Handle adds what a webhook of this kind adds: a scheduler, a gate, a label, and a toleration.
func (m *mutator) Handle(_ context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := m.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	changed := pod.DeepCopy()
	if changed.Labels == nil {
		changed.Labels = map[string]string{}
	}
	changed.Labels["linkwise.dev/bench"] = "usual"
	changed.Spec.SchedulerName = "linkwise"
	gate := corev1.PodSchedulingGate{Name: "linkwise.dev/gang"}
	changed.Spec.SchedulingGates = append(changed.Spec.SchedulingGates, gate)
	raw, err := json.Marshal(changed)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, raw)
}

func main() {
	ctrl.SetLogger(zap.New())
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: os.Args[2]})
	server.Register("/mutate", &admission.Webhook{Handler: &mutator{admission.NewDecoder(scheme)}})
	log.Fatal(server.Start(ctrl.SetupSignalHandler()))
}
