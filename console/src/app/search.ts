type Search = Readonly<Record<string, unknown>>

/**
 * Reads the parameters of an address by `read`, which leaves out what makes no sense. The router would give the page what was left
 * out as it stands in the address.
 */
export const searchBy =
  <Read extends object>(read: (search: Search) => Read) =>
  (search: Search): Read => ({
    ...Object.fromEntries(Object.keys(search).map((name) => [name, undefined])),
    ...read(search),
  })
