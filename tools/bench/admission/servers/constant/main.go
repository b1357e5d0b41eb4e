// Command constant is the least a webhook can be: net/http, and the same patch for every pod.
//
//	constant ADDRESS CERTIFICATE KEY PATCH
//
// PATCH is a file. Of a review it reads the uid alone, which an answer must repeat.
package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
)

type question struct {
	Request struct {
		UID string `json:"uid"`
	} `json:"request"`
}

type response struct {
	UID       string `json:"uid"`
	Allowed   bool   `json:"allowed"`
	Patch     []byte `json:"patch"`
	PatchType string `json:"patchType"`
}

type answer struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Response   response `json:"response"`
}

func main() {
	patch, err := os.ReadFile(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("POST /mutate", func(w http.ResponseWriter, r *http.Request) {
		var asked question
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &asked)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		response := response{asked.Request.UID, true, patch, "JSONPatch"}
		json.NewEncoder(w).Encode(answer{"admission.k8s.io/v1", "AdmissionReview", response})
	})
	log.Fatal(http.ListenAndServeTLS(os.Args[1], os.Args[2], os.Args[3], nil))
}
