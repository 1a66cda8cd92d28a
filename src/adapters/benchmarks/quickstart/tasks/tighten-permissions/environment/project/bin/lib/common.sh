#!/bin/bash
log() { echo "$*"; }
