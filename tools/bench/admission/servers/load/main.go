// Command load sends one body again and again over connections of its own, as fast as they are
// answered, and prints in JSON how that went: seconds and failures, with the first one's words.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

var (
	target      = flag.String("url", "", "where to POST")
	authority   = flag.String("ca", "", "file of the certificates that verify the server")
	token       = flag.String("token", "", "bearer token; empty for none")
	file        = flag.String("body", "", "file that is sent")
	expect      = flag.String("expect", "", "what a good answer contains")
	connections = flag.Int("connections", 25, "how many, each with one request at a time")
	count       = flag.Int("count", 1, "requests")
)

type outcome struct {
	Seconds  float64 `json:"seconds"`
	Failures int     `json:"failures"`
	First    string  `json:"first"`
}

type sender struct {
	client *http.Client
	body   []byte
}

// send returns what is wrong with the answer; nothing where it is good.
func (s *sender) send() string {
	request, err := http.NewRequest(http.MethodPost, *target, bytes.NewReader(s.body))
	if err != nil {
		return err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	if *token != "" {
		request.Header.Set("Authorization", "Bearer "+*token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	if response.StatusCode >= 300 || !bytes.Contains(answer, []byte(*expect)) {
		return fmt.Sprintf("%d %.500s", response.StatusCode, answer)
	}
	return ""
}

// open makes the connection by a request for something else.
func (s *sender) open() {
	where, err := url.Parse(*target)
	if err != nil {
		log.Fatal(err)
	}
	where.Path = "/healthz"
	response, err := s.client.Get(where.String())
	if err != nil {
		log.Fatal(err)
	}
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
}

func senders(body []byte, pool *x509.CertPool) []*sender {
	made := make([]*sender, *connections)
	for i := range made {
		// Without a protocol to choose there is no HTTP/2, as an API server has it.
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool, NextProtos: []string{"http/1.1"}},
			MaxConnsPerHost: 1,
		}
		made[i] = &sender{&http.Client{Transport: transport, Timeout: 30 * time.Second}, body}
	}
	return made
}

// all runs a function once for each sender, at once.
func all(senders []*sender, work func(*sender)) {
	var group sync.WaitGroup
	for _, one := range senders {
		group.Go(func() { work(one) })
	}
	group.Wait()
}

func run(senders []*sender) outcome {
	var next atomic.Int64
	var lock sync.Mutex
	var found outcome
	start := time.Now()
	all(senders, func(s *sender) {
		for {
			if next.Add(1) > int64(*count) {
				return
			}
			if wrong := s.send(); wrong != "" {
				lock.Lock()
				if found.Failures == 0 {
					found.First = wrong
				}
				found.Failures++
				lock.Unlock()
			}
		}
	})
	found.Seconds = time.Since(start).Seconds()
	return found
}

func main() {
	flag.Parse()
	body, err := os.ReadFile(*file)
	if err != nil {
		log.Fatal(err)
	}
	certificates, err := os.ReadFile(*authority)
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificates)
	made := senders(body, pool)
	all(made, (*sender).open)
	json.NewEncoder(os.Stdout).Encode(run(made))
}
