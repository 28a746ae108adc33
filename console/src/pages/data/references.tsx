import { useQuery } from '@tanstack/react-query'
import { type Catalog, type Collection, useCatalog } from '../../app/catalog.ts'
import { client } from '../../app/client.ts'
import { Loading, Note } from '../../ui/states.tsx'

/** The columns of other collections whose values are keys of this one, whether or not it declares the relation. */
export const columnsTo = (collection: Collection, catalog: Catalog) =>
  [...catalog.values()]
    .filter(({ isSystem }) => !isSystem)
    .flatMap((other) =>
      other.fields
        .filter(({ relation }) => relation?.target === collection.name)
        .map((field) => ({ collection: other, field })),
    )

type Reference = { readonly collection: string; readonly label: string; readonly field: string; readonly count: number }

/** Which rows refer to those that are about to be deleted. */
export function References({ collection, ids }: { readonly collection: Collection; readonly ids: readonly string[] }) {
  const catalog = useCatalog()
  const { data, isPending } = useQuery({
    queryKey: ['references', collection.name, ids],
    queryFn: async ({ signal }) => {
      const found: Reference[] = []
      for (const { collection: other, field } of columnsTo(collection, catalog)) {
        const filter = { [field.name]: { in: ids } }
        const { totalCount = 0 } = await client.items(other.name).list({ filter, limit: 0, signal })
        if (totalCount > 0)
          found.push({ collection: other.name, label: other.label, field: field.name, count: totalCount })
      }
      return found
    },
    staleTime: 0,
  })
  if (isPending) return <Loading lines={2} label="Looking for what refers to them" />
  if (data === undefined || data.length === 0) return <p>Nothing else refers to {ids.length === 1 ? 'it' : 'them'}.</p>
  return (
    <Note kind="warning">
      Other rows refer to {ids.length === 1 ? 'it' : 'them'}. They lose the reference, go too, or forbid this, as their
      relation says:
      <ul>
        {data.map(({ collection: name, label, field, count }) => (
          <li key={`${name}.${field}`}>
            {count.toLocaleString()} of {label} by <code>{field}</code>
          </li>
        ))}
      </ul>
    </Note>
  )
}
