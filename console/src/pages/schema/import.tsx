import { useState } from 'react'
import { Button } from '../../ui/button.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { DropArea } from '../../ui/drop.tsx'
import { Checkbox, Field, Input, takeFiles } from '../../ui/field.tsx'
import { Problem } from '../../ui/states.tsx'
import { type Change, importation, type SchemaFile } from './changes.ts'
import { Review } from './review.tsx'
import styles from './schema.module.css'

/** Definitions from a file, all of them or none; first what that does is shown. */
export function Import({ onClose }: { readonly onClose: () => void }) {
  const [file, setFile] = useState<SchemaFile>()
  const [error, setError] = useState<unknown>()
  const [isWhole, setWhole] = useState(false)
  const [change, setChange] = useState<Change>()
  const choose = async (chosen: File | undefined) => {
    setFile(undefined)
    setError(undefined)
    if (chosen === undefined) return
    try {
      setFile(fileIn(await chosen.text()))
    } catch (failure) {
      setError(failure)
    }
  }
  const names = file?.schemas.map(({ collectionName }) => collectionName) ?? []
  return (
    <Dialog
      isOpen
      onClose={onClose}
      title="Import definitions"
      description="A file that an export has made. Collections that it does not name stay as they are."
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            kind="primary"
            disabled={file === undefined}
            onClick={() => file !== undefined && setChange(importation(file, isWhole))}
          >
            Review…
          </Button>
        </>
      }
    >
      <DropArea label="Drop to choose the file" onFiles={([chosen]) => void choose(chosen)}>
        <div className={styles.form}>
          <Field label="File" hint={names.length > 0 ? `${names.length}: ${names.slice(0, 20).join(', ')}` : undefined}>
            {(attributes) => (
              <Input
                {...attributes}
                type="file"
                accept=".json,application/json"
                onChange={({ target }) => void choose(takeFiles(target)[0])}
              />
            )}
          </Field>
          <Checkbox
            label="What the file leaves out of a collection goes"
            checked={isWhole}
            onChange={({ target }) => setWhole(target.checked)}
          />
          {error !== undefined && <Problem error={error} />}
        </div>
      </DropArea>
      {change !== undefined && <Review change={change} onClose={() => setChange(undefined)} onDone={onClose} />}
    </Dialog>
  )
}

function fileIn(text: string): SchemaFile {
  const value: unknown = JSON.parse(text)
  const { schemas } = Object(value) as { schemas?: unknown }
  const isExport =
    Array.isArray(schemas) &&
    schemas.length > 0 &&
    schemas.every((one: unknown) => typeof (Object(one) as { collectionName?: unknown }).collectionName === 'string')
  if (!isExport) throw new Error('This is no export of definitions: it has no list “schemas”')
  return value as SchemaFile
}
