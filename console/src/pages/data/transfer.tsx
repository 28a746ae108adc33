import { useNavigate } from '@tanstack/react-router'
import { Download, Trash2, Upload } from 'lucide-react'
import { Suspense, useState } from 'react'
import type { Collection } from '../../app/catalog.ts'
import { lazyComponent } from '../../app/lazy.ts'
import { Button } from '../../ui/button.tsx'
import { Menu } from '../../ui/menu.tsx'
import { type ListSearch, parametersOf } from './query.ts'
import type { ExportFormat } from './row-counter.ts'

const Import = lazyComponent(() => import('./import.tsx'), 'Import')
const Export = lazyComponent(() => import('./export.tsx'), 'Export')

type TransferProps = {
  readonly collection: Collection
  readonly search: ListSearch
  /** How many rows the list has, as far as that is known. */
  readonly count: number | undefined
  readonly onDone: () => void
}

/** Rows from files, and into files. */
export function Transfer({ collection, search, count, onDone }: TransferProps) {
  const navigate = useNavigate()
  const [isImporting, setImporting] = useState(false)
  const [exported, setExported] = useState<ExportFormat>()
  return (
    <>
      <Menu
        align="end"
        trigger={
          <Button size="s">
            <Download aria-hidden="true" /> Import, export
          </Button>
        }
        entries={[
          ...(collection.mayCreate
            ? [
                {
                  label: 'Import CSV or JSON…',
                  icon: <Upload aria-hidden="true" />,
                  onSelect: () => setImporting(true),
                },
                'separator' as const,
              ]
            : []),
          ...(['csv', 'json'] as const).map((format) => ({
            label: `Export what is shown as ${format.toUpperCase()}`,
            icon: <Download aria-hidden="true" />,
            onSelect: () => setExported(format),
          })),
          'separator',
          {
            label: 'Trash',
            icon: <Trash2 aria-hidden="true" />,
            onSelect: () => void navigate({ to: '/trash/$collection', params: { collection: collection.name } }),
          },
        ]}
      />
      {isImporting && (
        <Suspense>
          <Import collection={collection} onClose={() => setImporting(false)} onDone={onDone} />
        </Suspense>
      )}
      {exported !== undefined && (
        <Suspense>
          <Export
            title={`Export ${collection.label} as ${exported.toUpperCase()}`}
            address={exportAddress(collection.name, search, exported)}
            format={exported}
            expected={count}
            onClose={() => setExported(undefined)}
          />
        </Suspense>
      )}
    </>
  )
}

function exportAddress(collection: string, search: ListSearch, format: ExportFormat): string {
  const query = new URLSearchParams({ format })
  for (const [name, value] of Object.entries(parametersOf(search)))
    if (value !== undefined) query.set(name, typeof value === 'object' ? JSON.stringify(value) : String(value))
  if (search.columns !== undefined) query.set('fields', search.columns)
  return `/items/${encodeURIComponent(collection)}/export?${query}`
}
