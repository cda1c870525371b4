-- Whether a member stands behind another of the same score. Redis compares bytes; `<` in Lua does not.
local function is_behind(one, other)
  for at = 1, math.min(#one, #other) do
    local byte, byte_of_other = string.byte(one, at), string.byte(other, at)
    if byte ~= byte_of_other then return byte > byte_of_other end
  end
  return #one > #other
end
