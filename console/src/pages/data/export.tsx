import { useEffect, useState } from 'react'
import { Button } from '../../ui/button.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { Problem } from '../../ui/states.tsx'
import { notify } from '../../ui/toast.tsx'
import { type Exported, readExport, saveFile } from './export-file.ts'
import styles from './import.module.css'
import type { ExportFormat } from './row-counter.ts'

type ExportProps = {
  readonly title: string
  readonly address: string
  readonly format: ExportFormat
  /** How many rows it is likely to have; undefined where nobody has counted. */
  readonly expected: number | undefined
  readonly onClose: () => void
}

/** Reads rows into a file and saves it when it is whole. Closing it before ends it, here and on the server. */
export function Export({ title, address, format, expected, onClose }: ExportProps) {
  const [so, setSo] = useState<Exported>({ rows: 0, bytes: 0 })
  const [error, setError] = useState<unknown>()
  useEffect(() => {
    const stop = new AbortController()
    const { signal } = stop
    readExport(address, format, { signal, onProgress: setSo }).then(
      ({ content, name, rows }) => {
        if (signal.aborted) return
        saveFile(content, name)
        notify(`${rows.toLocaleString()} ${rows === 1 ? 'row' : 'rows'} saved as ${name}`)
        onClose()
      },
      (failure: unknown) => signal.aborted || setError(failure),
    )
    return () => stop.abort()
    // It is begun once: the dialog is made for one file.
  }, [])
  const all = expected === undefined || expected < so.rows ? '' : ` of ${expected.toLocaleString()}`
  const share = expected === undefined || so.rows === 0 ? undefined : Math.min(1, so.rows / expected)
  return (
    <Dialog
      isOpen
      onClose={onClose}
      title={title}
      description="The file is saved when all of it has come."
      footer={<Button onClick={onClose}>{error === undefined ? 'Cancel' : 'Close'}</Button>}
    >
      {error === undefined ? (
        <div className={styles.progress}>
          <span>
            {so.rows.toLocaleString()}
            {all} rows, {size(so.bytes)}
          </span>
          <progress aria-label="Progress" {...(share !== undefined && { value: share })} />
        </div>
      ) : (
        <>
          <p>Nothing was saved: a part of the file would look like all of it.</p>
          <Problem error={error} />
        </>
      )}
    </Dialog>
  )
}

const size = (bytes: number): string =>
  bytes < 1_000_000 ? `${Math.ceil(bytes / 1000)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`
