-- A stand-in for telescope, the test framework of redis-lua's tests, which no Debian package has. Usage:
--
--     lua5.1 telescope.lua TEST-FILE PORT
--
-- Runs a file of tests against the server at 127.0.0.1:PORT and prints "ok TITLE" or "not ok TITLE: reason" for each.
-- A context runs its `before` functions, and those of the contexts around it, before each test.
local file, port = arg[1], tonumber(arg[2])
local telescope, path, setups, teardowns = {}, {}, {}, {}

function telescope.make_assertion(name, text, holds)
    _G["assert_" .. name] = function(...)
        if holds(...) then return end
        local given = {}
        for i = 1, select("#", ...) do given[i] = tostring((select(i, ...))) end
        error("assert_" .. name .. "(" .. table.concat(given, ", ") .. ")", 2)
    end
end
for name, holds in pairs({
    equal = function(a, b) return a == b end,
    ["true"] = function(a) return a == true end,
    ["false"] = function(a) return a == false end,
    ["nil"] = function(a) return a == nil end,
    not_nil = function(a) return a ~= nil end,
    empty = function(a) return not next(a) end,
    error = function(f) return not pcall(f) end,
    type = function(a, b) return type(a) == b end,
    greater_than = function(a, b) return a > b end,
    gte = function(a, b) return a >= b end,
    lte = function(a, b) return a <= b end,
}) do telescope.make_assertion(name, "", holds) end

function context(title, body)
    table.insert(path, title)
    table.insert(setups, {})
    table.insert(teardowns, {})
    body()
    table.remove(path)
    table.remove(setups)
    table.remove(teardowns)
end
function before(body) table.insert(setups[#setups], body) end
function after(body) table.insert(teardowns[#teardowns], body) end
function test(title, body)
    local good, reason = pcall(function()
        for _, level in ipairs(setups) do for _, each in ipairs(level) do each() end end
        body()
        for i = #teardowns, 1, -1 do for _, each in ipairs(teardowns[i]) do each() end end
    end)
    title = table.concat(path, " / ") .. " / " .. title
    print(good and "ok " .. title or "not ok " .. title .. ": " .. string.gsub(tostring(reason), "\n", " "))
    io.flush()
end

package.loaded.telescope = telescope
-- The tests connect to the port that their settings name.
local redis = require "redis"
local connect = redis.connect
redis.connect = function(to, ...)
    if type(to) == "table" and to.port == 6379 then to.port = port end
    if type(to) == "string" then to = string.gsub(to, ":6379", ":" .. port) end
    if (...) == 6379 then return connect(to, port) end
    return connect(to, ...)
end
socket = require "socket" -- they use it as a global variable
dofile(file)
