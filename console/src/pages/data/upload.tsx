import { type ReactNode, useRef, useState } from 'react'
import { DaybookError } from '../../../../clients/client.ts'
import { client } from '../../app/client.ts'
import { explain } from '../../app/errors.ts'
import { Button } from '../../ui/button.tsx'
import { DropArea } from '../../ui/drop.tsx'
import { takeFiles } from '../../ui/field.tsx'
import { notify, notifyProblem } from '../../ui/toast.tsx'
import type { Choice } from './draft.ts'
import styles from './upload.module.css'
import { endsUpload, inWords, type Refused } from './upload-result.ts'

/** The upload that runs, and how much of it has arrived. */
type Running = { readonly name: string; readonly share: number; readonly stop: () => void }

/** Uploads files one after the other. What has arrived stays, also where others are refused or stopped. */
export function useUpload() {
  const [running, setRunning] = useState<Running>()
  /** Gives the row of each as it has arrived, and in the end whether all of them have. */
  const send = async (files: readonly File[], onEach: (file: Choice) => void): Promise<boolean> => {
    const { signal, abort } = stopper()
    const refused: Refused[] = []
    let uploaded = 0
    for (const file of files) {
      const show = (share: number) => setRunning({ name: file.name, share, stop: abort })
      show(0)
      try {
        const id = await client.files.upload(file, { onProgress: show, signal })
        uploaded += 1
        onEach({ id, title: file.name })
      } catch (error) {
        if (signal.aborted) break
        refused.push({ name: file.name, why: explain(error) })
        if (error instanceof DaybookError && endsUpload(error.status)) break
      }
    }
    setRunning(undefined)
    const { title, text } = inWords({ chosen: files.length, uploaded, refused, isStopped: signal.aborted })
    if (refused.length > 0) notifyProblem(title, text)
    else if (signal.aborted) notify(title, { text })
    return uploaded === files.length
  }
  return { running, send }
}

function stopper() {
  const stopping = new AbortController()
  return { signal: stopping.signal, abort: () => stopping.abort() }
}

/** How far it is, with a button that stops it. */
export function Uploading({ name, share, stop }: Running) {
  return (
    <div className={styles.uploading} role="status">
      <label>
        {name}
        <progress value={share} />
      </label>
      <Button size="s" onClick={stop}>
        Stop
      </Button>
    </div>
  )
}

type UploadProps = {
  readonly isMany?: boolean
  readonly onEach: (file: Choice) => void
  /** Shows the files that are chosen: others can be dropped on it, or pasted into it. */
  readonly children: ReactNode
}

/** Uploads a file, or several, that are dropped, pasted, or chosen by a button, and gives the row of each. */
export function Upload({ isMany = false, onEach, children }: UploadProps) {
  const input = useRef<HTMLInputElement>(null)
  const { running, send } = useUpload()
  return (
    <DropArea
      label="Drop to upload"
      isMany={isMany}
      isDisabled={running !== undefined}
      onFiles={(files) => void send(files, onEach)}
    >
      {children}
      <input
        ref={input}
        type="file"
        multiple={isMany}
        hidden
        aria-hidden="true"
        tabIndex={-1}
        onChange={({ target }) => void send(takeFiles(target), onEach)}
      />
      <Button size="s" isBusy={running !== undefined} onClick={() => input.current?.click()}>
        {isMany ? 'Upload files' : 'Upload a file'}
      </Button>
      {running !== undefined && <Uploading {...running} />}
    </DropArea>
  )
}
