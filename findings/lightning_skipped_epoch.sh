#!/usr/bin/env bash
# Lightning 2.6.6 with torchdata 0.11.0's StatefulDataLoader, which its warning about resumes asks for: a checkpoint of every_n_train_steps
# that falls on the last batch of an epoch loses the next epoch. Lightning resumes in epoch 1, and restores the loader to where epoch 0
# ended; so epoch 1 has no batch, and the run ends with epochs - 1 epochs of updates, without a message. A checkpoint in the middle of an
# epoch is resumed rightly, one that is saved at an epoch's end (the default) too, and a plain DataLoader has all of epoch 1.
. "$(dirname "$0")/support.sh"
packages lightning==2.6.6 torchdata==0.11.0 torch==2.15.0 numpy==2.4.6
cat > "$folder/train.py" <<'PYTHON'
import logging
import os
import sys

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
folder, EPOCHS, BATCHES = sys.argv[1], 3, 6


class Model(lightning.LightningModule):
    def __init__(self, last_batch):
        super().__init__()
        self.layer, self.last_batch, self.batches = torch.nn.Linear(1, 1), last_batch, [0] * EPOCHS

    def training_step(self, batch, index):
        if sum(self.batches) == self.last_batch:
            raise SystemError("the job is killed")
        self.batches[self.current_epoch] += 1
        return self.layer(batch.float()[:, None] / 24).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fit(loader, last_batch=None, checkpoint=None, saves=None):
    model = Model(last_batch)
    trainer = lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", logger=False, callbacks=saves, enable_checkpointing=bool(saves),
                                enable_progress_bar=False, enable_model_summary=False)
    try:
        trainer.fit(model, loader(range(4 * BATCHES), batch_size=4, shuffle=True), ckpt_path=checkpoint)
    except SystemError:
        pass
    return model.batches


print(f"Lightning {lightning.__version__}: {EPOCHS} epochs of {BATCHES} batches, the job is killed after 8 batches and resumed")
seen = {}
for loader, every in ((DataLoader, 6), (StatefulDataLoader, 4), (StatefulDataLoader, 6)):
    place = f"{folder}/{loader.__name__}{every}"
    fit(loader, last_batch=every + 2, saves=[ModelCheckpoint(dirpath=place, every_n_train_steps=every)])
    name, = os.listdir(place)
    batches = seen[loader, every] = fit(loader, checkpoint=f"{place}/{name}")
    expected = [max(0, min(BATCHES, BATCHES * (epoch + 1) - every)) for epoch in range(EPOCHS)]
    print(f"{loader.__name__}, checkpoint after {every} batches: batches of epochs 0, 1, 2 after the resume: expected {expected}, seen {batches}")
sys.exit(seen != {(DataLoader, 6): [0, 6, 6], (StatefulDataLoader, 4): [2, 6, 6], (StatefulDataLoader, 6): [0, 0, 6]})
PYTHON
HOME=$folder CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 check "$python" -W ignore "$folder/train.py" "$folder"
