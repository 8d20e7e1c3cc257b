-- The figures of INFO rdma for Prometheus. The exporter of the distribution knows the sections of INFO that Valkey has,
-- and runs a script for all others:
--
--     prometheus-redis-exporter -redis.addr redis://localhost:6379 -script /path/to/rdma-metrics.lua
--
-- Each field that is a number becomes redis_script_values{key="rdma_..."}. A server without RDMA has none.
local figures = {}
for name, value in redis.call('INFO', 'rdma'):gmatch('(rdma_[%w_]+):([%d.]+)\r?\n') do
    figures[#figures + 1] = name
    figures[#figures + 1] = value
end
return figures
