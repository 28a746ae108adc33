import { queryOptions, useQuery } from '@tanstack/react-query'
import { client } from '../app/client.ts'
import type { Field } from '../app/definition.ts'

/** An extension of the console, as the server lists it for whoever is signed in. */
export type Extension = {
  readonly name: string
  readonly title: string
  /** Where its files are; the address holds for half a day. */
  readonly base: string
  readonly page: string | null
  readonly editors: readonly { readonly name: string; readonly file: string }[]
  readonly collections: { readonly read: readonly string[]; readonly write: readonly string[] }
}

export const extensionsQuery = queryOptions({
  queryKey: ['extensions'],
  queryFn: async () => (await client.request<{ data: readonly Extension[] }>('/console/extensions.json')).data,
  staleTime: 600_000,
})

/** Does something by the API for an extension: the server lets through what both it and whoever is signed in may. */
export const inTheNameOf = ({ name }: Extension) => ({ 'x-svc-console-extension': name })

/** An editor for a field; `missing` where the list has none of its name. */
export type FoundEditor = { readonly extension: Extension; readonly file: string } | 'missing' | 'loading'

/** Finds the editor that a field's definition names; undefined where it names none, or is a relation. */
export function useEditors(): (field: Field) => FoundEditor | undefined {
  const { data, isPending } = useQuery(extensionsQuery)
  return ({ editor, relation }) => {
    if (editor === undefined || relation !== undefined) return undefined
    if (isPending) return 'loading'
    const [name, wanted] = editor.split('/')
    const extension = data?.find((one) => one.name === name)
    const file = extension?.editors.find((one) => one.name === wanted)?.file
    return extension === undefined || file === undefined ? 'missing' : { extension, file }
  }
}
