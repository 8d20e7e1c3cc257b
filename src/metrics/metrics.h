/* metrics.h: the fields of INFO as metrics for Prometheus, over HTTP: metrics-port, metrics-bind, metrics-unixsocket.
 *
 * GET /metrics returns INFO everything, as of the request, in the text exposition format 0.0.4. A new field of INFO
 * needs no code here, unless it is a counter (metrics_text.c).
 *
 *   used_memory:1020816                    valkey_used_memory 1020816
 *   total_commands_processed:30            valkey_commands_processed_total 30          (a counter)
 *   rdb_last_bgsave_status:ok              valkey_rdb_last_bgsave_status 1
 *   role:master                            valkey_role_info{value="master"} 1
 *   cmdstat_get:calls=2,usec=20            valkey_cmdstat_calls_total{cmd="get"} 2, valkey_cmdstat_usec_total{...} 20
 *   slave0:ip=10.0.0.2,port=6379,lag=1     valkey_slave_lag{slave="0",ip="10.0.0.2",port="6379"} 1
 *   rdma_errors_rnr:0                      valkey_rdma_errors_total{kind="rnr"} 0
 *   latency_percentiles_usec_get:p50=7.0   valkey_latency_percentiles_usec{cmd="get",quantile="0.5"} 7.0
 *
 * The main thread's event loop serves requests, also during a load or a busy script (server/nested_turn.h). There is no
 * authentication; by default the listener accepts only connections from this machine (metrics-bind). While the options
 * are off, nothing is allocated and nothing runs. */
#pragma once
#include "lib/text/output.h"

struct feature;
extern const struct feature metrics_feature;

/* Converts the text of INFO to the text exposition format. */
void metrics_write(struct output *out, struct slice info);
