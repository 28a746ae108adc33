export type List<Row> = { readonly data: readonly Row[]; readonly totalCount: number }
export type Refusal = { readonly error: { readonly message: string } }

/** `/items/country?fields=…&filter=…`, objects and lists as JSON. */
export function list(collection: string, query: Readonly<Record<string, unknown>>): string {
  const parameters = Object.entries(query).map(([name, value]): [string, string] => [
    name,
    typeof value === 'object' ? JSON.stringify(value) : String(value),
  ])
  return `/items/${collection}?${new URLSearchParams(parameters)}`
}
