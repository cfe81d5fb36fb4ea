-- SPDX-License-Identifier: Apache-2.0
-- For `unsupported` of providers that take what they have for all there is: why several ranks cannot use them.
-- `kinds`: the kinds of parts that need the other ranks.
return function(arch, kinds)
    for _, kind in ipairs(kinds) do
        if arch.ranks > 1 and arch.parts[kind] then
            return "it sees one rank's values only, but " .. kind .. " takes those of all " .. arch.ranks .. " ranks"
        end
    end
end
